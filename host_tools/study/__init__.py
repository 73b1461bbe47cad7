"""What the BlueFlame study measured: `bluebridge sweep`, and `bluebridge model` for logs.

Of a sweep `request` says what is to be measured, `run` measures a payload, `modelled` gives it its
modelled time and says where the driver changes its way, `journal` keeps what is done, `plot` shows
it. `tables` has the study's own figures.
"""
