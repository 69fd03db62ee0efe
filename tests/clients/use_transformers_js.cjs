// transformers.js on Node. The argument is the folder with node_modules.
const path = require("path");
const { createRequire } = require("module");
const theirs = createRequire(process.argv[2] + path.sep);
const { env, pipeline } = theirs("@huggingface/transformers");
const [task, folder, texts] = JSON.parse(require("fs").readFileSync(0));
env.allowRemoteModels = false;
env.localModelPath = path.dirname(folder);

async function main() {
  const name = path.basename(folder);
  const open = (kind) => pipeline(kind, name, { dtype: "fp32" });
  if (task === "embed") {
    const embed = await open("feature-extraction");
    return (await embed(texts, { pooling: "mean", normalize: true })).tolist();
  }
  if (task === "classify") {
    return (await (await open("text-classification"))(texts)).map((row) => row.label);
  }
  const answer = await open("question-answering");
  // Otherwise it numbers segments for classes of BERT's tokenizers only.
  answer.tokenizer.return_token_type_ids = true;
  const found = [];
  for (const [question, context] of texts) found.push((await answer(question, context)).answer);
  return found;
}

main().then((answer) => console.log(JSON.stringify(answer)));
