"""The engines of RTRS on real hardware: connections by CM, queue pairs and memory by verbs.

    loop = Loop()
    with open_interfaces(words) as interfaces:            # devices, addresses, connection managers
        memory = Slots(interfaces)
        engine = ClientSession(name, memory, random, settings)
        transport = Transport(engine, interfaces, loop, upper)
        transport.call(lambda now: engine.open(paths, now))
        loop.run()

`loop` owns all waiting. `upper` gets the actions that are for the layer above, such as `Finished`.
"""
