// openai-node's stream helpers against the base URL that is given, in an answer that took several rounds.
import OpenAI from "openai";

const [baseURL, request] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "sk-test", maxRetries: 0 });
const stream = client.chat.completions.stream({ ...JSON.parse(request), stream_options: { include_usage: true } });
let text = "";
stream.on("content", (delta) => (text += delta));
const { id, choices, usage } = await stream.finalChatCompletion();
const calls = (choices[0].message.tool_calls ?? []).map((call) => call.function.arguments);
const found = { text, content: choices[0].message.content, role: choices[0].message.role, calls, finish: choices[0].finish_reason };
console.log(JSON.stringify({ ...found, one: typeof id === "string" && id.length > 0, prompt: usage.prompt_tokens }));
