const fs = require("fs");
const text = "the rung you stand on is the rung you fall from";
const counts = {};
for (const w of text.split(" ")) counts[w] = (counts[w] || 0) + 1;
fs.writeFileSync("/work/counts.json", JSON.stringify(counts));
console.log("  javascript counted", Object.keys(counts).length, "words, processes here:",
  fs.readdirSync("/proc").filter((n) => /^\d+$/.test(n)).length);
