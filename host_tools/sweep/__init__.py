"""`bluebridge sweep`: latency against payload, with BlueFlame and without.

`request` says what is to be measured, `run` measures a payload, `modelled` gives it its modelled
time and says where the driver changes its way, `journal` keeps what is done, `plot` and `page`
show it.
"""
