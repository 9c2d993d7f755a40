// An agent loop of the Vercel AI SDK: it reads a log for as long as the model asks for one.
import { readFileSync } from "node:fs";
import { openai } from "@ai-sdk/openai";
import { generateText, isStepCount, jsonSchema, tool } from "ai";

const prompt = process.argv[2];
const path = jsonSchema({ type: "object", properties: { path: { type: "string" } }, required: ["path"] });
const read_log = tool({ inputSchema: path, execute: ({ path }) => readFileSync(path, "utf8") });

const model = openai.chat(process.env.OPENAI_MODEL);
const { text } = await generateText({ model, prompt, tools: { read_log }, stopWhen: isStepCount(100), maxRetries: 0 });
console.log(text);
