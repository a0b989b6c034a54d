"""Says what it hears: an inline plugin of the older kind, without a manifest beside config.yml."""

from base.BasePlugin import BasePlugin
from core.coreInterface import CoreInterface


class EchoPlugin(BasePlugin):
    def __init__(self, coreInst: CoreInterface):
        super().__init__(coreInst=coreInst)

    async def run(self):
        reply = f"{self.config['prefix']} {self.user_input}"
        # What is sent to a channel is the answer of the call.
        await self.coreInst.send_response_to_request_channel(reply, self.promptRequest)
