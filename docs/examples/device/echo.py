import asyncio, os, sys
from tidings.client.memory_device import MemoryDevice
from tidings.wire import content


class Echo(MemoryDevice):
    def ready(self):
        print("logged in", flush=True)

    def received(self, peer, plaintext):
        if content.decode(plaintext).type == content.TEXT:
            self.reply(peer, plaintext)

    def unreadable(self, peer, error):
        print("unreadable:", error, flush=True)


async def main(url, number):
    device = Echo(url, number)
    await device.register(os.environ["TIDINGS_REGISTRATION_KEY"])
    await device.run(asyncio.Event())


asyncio.run(main(*sys.argv[1:]))
