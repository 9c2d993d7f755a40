// openai-node against the base URL that is given: one word for each thing that works.
import OpenAI, { toFile } from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "sk-test", maxRetries: 0 });
const asked = { model: "m", messages: [{ role: "user", content: "Say hello." }] };

const answer = await client.chat.completions.create(asked);
const text = answer.choices[0].message.content;
if (!text) throw new Error("an empty answer");
console.log("answered");

let streamed = "";
for await (const event of await client.chat.completions.create({ ...asked, stream: true })) {
  streamed += event.choices[0]?.delta.content ?? "";
}
if (streamed !== text) throw new Error(`streamed ${streamed}, answered ${text}`);
console.log("streamed");

const file = await client.files.create({ file: await toFile(Buffer.alloc(3_000_000), "big.bin"), purpose: "assistants" });
if (file.bytes !== 3_000_000) throw new Error(`uploaded ${file.bytes} bytes`);
console.log("uploaded");
