"""Converts lengths: an inline plugin of HomeClaw in both styles."""

from base.BasePlugin import BasePlugin


class UnitsPlugin(BasePlugin):
    def initialize(self):
        # Whatever is raised here is the member's error in the roster.
        self.metres = {name: float(metres) for name, metres in self.config["units"].items()}

    async def convert(self, value, unit, to="m"):
        for name in (unit, to):
            if name not in self.metres:
                return {"success": False, "error": f"{name} is no unit that is known"}
        result = value * self.metres[unit] / self.metres[to]
        # `text` is the answer; all else is structured content.
        return {"text": f"{value:g} {unit} = {result:g} {to}", "value": result, "unit": to}

    # Not async: it runs on a thread of its own and holds nobody up.
    def list_units(self):
        if self.config["style"] == "detailed":
            return "\n".join(f"{name}: {metres:g} m" for name, metres in self.metres.items())
        return ", ".join(self.metres)
