"""Lesson 9: serve an encoder over HTTP, with ONNX Runtime and without Keras.

FOLDER is from `task.export_to_hugging_face(FOLDER, onnx=True)`. Texts wait for a batch.

    python examples/serve.py FOLDER 8000 model_quantized.onnx
    curl localhost:8000 -d '["the quick fox", ["a question", "a passage"]]'
"""

import contextlib
import json
import queue
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

if "--help" in sys.argv:
    sys.exit(print(__doc__))

import numpy as np
import onnxruntime
import tokenizers

MAX_TEXTS, MAX_BYTES = 32, 1_000_000
FIELDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


def run_batches(waiting, session, output, pad_id):
    names = [each.name for each in session.get_inputs()]
    while True:
        requests, batch = [], []
        while not batch or (len(batch) < MAX_TEXTS and not waiting.empty()):
            requests.append(waiting.get())
            batch += requests[-1][0]
        for row in batch:
            row.pad(max(map(len, batch)), pad_id=pad_id)
        inputs = {n: np.array([getattr(row, FIELDS[n]) for row in batch], "int64") for n in names}
        try:
            outputs = iter(session.run([output], inputs)[0].tolist())
            for rows, answer in requests:
                answer.put((200, [next(outputs) for _ in rows]))
        except Exception as error:
            for _, answer in requests:
                answer.put((500, {"error": str(error)}))


def main(folder, port=8000, program="model.onnx"):
    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    max_length, pad_id = tokenizer.truncation["max_length"], tokenizer.padding["pad_id"]
    tokenizer.no_truncation()  # A long text is an error.
    with open(f"{folder}/tokenizer_config.json") as file:  # Whether "[SEP]" in a text is a word.
        tokenizer.encode_special_tokens = json.load(file).get("split_special_tokens", False)
    waiting, session = queue.Queue(), onnxruntime.InferenceSession(f"{folder}/onnx/{program}")
    vectors = {each.name for each in session.get_outputs() if len(each.shape) == 2}
    if not (outputs := vectors & {"sentence_embedding", "logits"}):
        sys.exit(f"{folder} must have one vector for each text, from an embedder or a classifier.")
    arguments = waiting, session, outputs.pop(), pad_id
    threading.Thread(target=run_batches, args=arguments, daemon=True).start()
    wanted = f"1 to {MAX_TEXTS} texts, or pairs of texts, of 1 to {max_length} tokens"
    usage = {"error": f"Send a JSON list of {wanted}, of at most {MAX_BYTES} bytes."}

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # Else an idle client would keep the process from its end.

        def do_GET(self):
            self.reply(200 if self.path == "/health" else 404, {})

        def do_POST(self):
            rows, size = [], 0
            with contextlib.suppress(Exception):  # Else `rows` stays empty.
                size = int(self.headers["Content-Length"])
                texts = json.loads(self.rfile.read(size)) if 0 < size <= MAX_BYTES else []
                rows = tokenizer.encode_batch(texts) if all(texts) else []
            if size > MAX_BYTES or len(rows) > MAX_TEXTS or any(len(r) > max_length for r in rows):
                self.reply(413, usage)
                while self.rfile.read(MAX_BYTES):  # Clients read the answer after they sent all.
                    pass
            elif rows:
                waiting.put((rows, answer := queue.Queue()))
                self.reply(*answer.get())
            else:
                self.reply(400, usage)

        def reply(self, status, answer):
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", len(body))
            self.end_headers()
            self.wfile.write(body)

    ThreadingHTTPServer.daemon_threads, ThreadingHTTPServer.request_queue_size = False, 128
    with ThreadingHTTPServer(("", int(port)), Handler) as server:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        server.serve_forever(poll_interval=0.1)
        server.timeout = 0
        for _ in range(server.request_queue_size):  # The connections that wait.
            server.handle_request()


if __name__ == "__main__":
    main(*sys.argv[1:])
