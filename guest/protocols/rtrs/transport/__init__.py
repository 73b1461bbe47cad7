"""The engines of RTRS on real hardware: connections by CM, queue pairs and memory by verbs.

    loop = Loop()
    with open_interfaces(words, wait) as interfaces:      # devices, addresses, connection managers
        side = ClientSide(interfaces, loop, upper, name, random.Random(), settings)
        side.transport.call(lambda now: side.engine.open(paths, now))
        loop.run()

`loop` owns all waiting. `upper` gets the actions that are for the layer above, such as `Finished`.
"""
