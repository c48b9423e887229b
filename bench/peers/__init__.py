"""The same flow in what people would use instead. Each is a program of its own in the peers' environment.

Takes: the service's address and the folder of the flow. Gives: exit code 0 when every step answered.
May touch: the checkout of the flow, the service.
"""
