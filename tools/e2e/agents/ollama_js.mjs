// An agent loop over ollama-js: `ollama_js.mjs SCRIPT`.
import { Ollama } from "ollama";

const page = (number) =>
  Array.from({ length: 20 }, (_, line) => `build ${number} line ${line}: took ${(line * 7919) % 10007} ms\n`).join("");
const parameters = { type: "object", required: ["number"], properties: { number: { type: "integer" } } };
const tools = [{ type: "function", function: { name: "read_log", description: "A page of the log.", parameters } }];
const client = new Ollama({ host: process.env.OLLAMA_HOST });
const messages = [{ role: "user", content: process.argv[2] }];
for (;;) {
  const { message } = await client.chat({ model: "m", messages, tools });
  messages.push(message);
  if (!message.tool_calls?.length) {
    console.log(message.content);
    break;
  }
  for (const call of message.tool_calls) {
    messages.push({ role: "tool", tool_name: "read_log", content: page(call.function.arguments.number) });
  }
}
