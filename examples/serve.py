"""Lesson 9: serve an encoder over HTTP, with ONNX Runtime and without Keras.

FOLDER is from `task.export_to_hugging_face(FOLDER, onnx=True)`. Texts wait for a batch.

    python examples/serve.py FOLDER 8000 model_quantized.onnx
    curl localhost:8000 -d '["the quick fox", "the foxes"]'
"""

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


def run_batches(waiting, session, pad_id):
    names = [each.name for each in session.get_inputs()]
    while True:
        requests, batch = [], []
        while not batch or (len(batch) < MAX_TEXTS and not waiting.empty()):
            requests.append(waiting.get())
            batch += requests[-1][0]
        for row in batch:
            row.pad(max(map(len, batch)), pad_id=pad_id)
        inputs = {n: np.array([getattr(row, FIELDS[n]) for row in batch], "int64") for n in names}
        outputs = iter(session.run(None, inputs)[-1].tolist())
        for rows, answer in requests:
            answer.put([next(outputs) for _ in rows])


def main(folder, port=8000, program="model.onnx"):
    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    max_length, pad_id = tokenizer.truncation["max_length"], tokenizer.padding["pad_id"]
    tokenizer.no_truncation()  # A long text is an error.
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is a word.
    waiting, session = queue.Queue(), onnxruntime.InferenceSession(f"{folder}/onnx/{program}")
    threading.Thread(target=run_batches, args=(waiting, session, pad_id), daemon=True).start()
    usage = {"error": f"Send a JSON list of 1 to {MAX_TEXTS} texts of 1 to {max_length} tokens."}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.reply(200 if self.path == "/health" else 404, {})

        def do_POST(self):
            try:
                size = min(max(int(self.headers["Content-Length"]), 0), MAX_BYTES)
                texts = json.loads(self.rfile.read(size))
                rows = tokenizer.encode_batch(texts) if all(texts) else []
            except Exception:
                rows = []
            if not rows or len(rows) > MAX_TEXTS or max(map(len, rows)) > max_length:
                return self.reply(413 if rows else 400, usage)
            waiting.put((rows, answer := queue.Queue()))
            self.reply(200, answer.get())

        def reply(self, status, answer):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    ThreadingHTTPServer.daemon_threads, ThreadingHTTPServer.request_queue_size = False, 128
    with ThreadingHTTPServer(("", int(port)), Handler) as server:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
