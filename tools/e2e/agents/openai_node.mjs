// An agent loop over openai-node: it reads a log for as long as the model asks for one.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const read = { name: "read_log", parse: JSON.parse, parameters, function: ({ path }) => readFileSync(path, "utf8") };
const request = { model: "embedded-model", messages: [{ role: "user", content: process.argv[2] }] };

const client = new OpenAI({ maxRetries: 0 });
const runner = client.chat.completions.runTools(
  { ...request, tools: [{ type: "function", function: read }] },
  { maxChatCompletions: 100 },
);
console.log(await runner.finalContent());
