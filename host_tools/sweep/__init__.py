"""`bluebridge sweep`: latency against payload, with BlueFlame and without.

`request` says what is to be measured, `thresholds` where the driver changes its way, `perftest`
and `guest_program` measure a payload, `modelled` gives it its modelled time from the bus log,
`journal` keeps what is done, `table`, `plot` and `page` show it.
"""
