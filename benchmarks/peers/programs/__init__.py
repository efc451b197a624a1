"""Job queues of other projects, each a process that carries out requests. The Python in build/peers runs them."""
