// Dice as a HomeClaw plugin: a PluginRequest on stdin, a PluginResult on stdout, and the end. Nothing to install.

const { randomInt } = require("node:crypto");
const { readFileSync } = require("node:fs");

function parse(notation) {
  const match = /^(\d*)d(\d+)([+-]\d+)?$/i.exec(notation);
  const [count, sides, modifier] = [match?.[1] || 1, match?.[2], match?.[3] ?? 0].map(Number);
  // Asked this way round, so that NaN is refused too.
  if (!(count >= 1 && count <= 100 && sides >= 2 && sides <= 1000 && Math.abs(modifier) <= 1000))
    throw new Error(`cannot roll "${notation}": write 2d6+1; 1-100 dice, 2-1000 sides, at most 1000 more or less`);
  return { count, sides, modifier };
}

const capabilities = {
  // Defaults are applied and types are checked before this is called; what the types do not say is ours to check.
  roll({ notation, times }) {
    if (times < 1 || times > 10) throw new Error(`cannot roll ${times} times: 1 to 10`);
    const { count, sides, modifier } = parse(notation);
    const totals = Array.from({ length: times }, () => {
      const rolls = Array.from({ length: count }, () => randomInt(1, sides + 1));
      return rolls.reduce((sum, roll) => sum + roll, modifier);
    });
    // `text` is for people. Whatever else is in the result is for programs, as structured content.
    return { text: `${notation} = ${totals.join(", ")}`, totals };
  },

  flip() {
    return { text: randomInt(2) ? "heads" : "tails" };
  },
};

// Contract 1: one line of JSON on stdin, then its end.
const request = JSON.parse(readFileSync(0, "utf8"));

// Contract 2: one line of JSON on stdout. Whatever else there is to say goes to stderr, which is the member's log.
function answer(result) {
  const { request_id, plugin_id } = request;
  console.log(JSON.stringify({ request_id, plugin_id, ...result }));
}

// Contract 3: exit 0. A failure that can be told is a result with `success: false`; any other exit is a failure of its
// own, and the last lines of stderr are told with it.
try {
  answer({ success: true, ...capabilities[request.capability_id](request.capability_parameters) });
} catch (error) {
  answer({ success: false, error: error.message });
}
