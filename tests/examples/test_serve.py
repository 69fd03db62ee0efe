"""The service of lesson 9: answers to many clients at a time, wrong requests, and its end."""

import concurrent.futures
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_diet.models import (
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
    DietBertTokenizer,
)
from tests.helpers import assert_close
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.any_backend

SCRIPT = Path(__file__).parents[2] / "examples/serve.py"
CLIENTS, WARM_UP, REQUESTS = 16, 500, 5000
# Of 4 to 11 tokens.
TEXTS = [
    "red cat",
    "the birds sing in a tall tree .",
    "foxes and cats sleep .",
    "the dogs jump over",
]


@pytest.fixture(scope="module")
def folder_and_embeddings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    preprocessor = DietBertTextEmbedderPreprocessor(DietBertTokenizer(VOCABULARY), 13)
    embedder = DietBertTextEmbedder(randomize_weights(tiny_backbone()), preprocessor)
    embedder.export_to_hugging_face(folder, onnx=True)
    embeddings = np.asarray(embedder.encode_text(TEXTS, verbose=0))
    return folder, dict(zip(TEXTS, embeddings, strict=True))


def request(port, method, path="/", body=None, headers=()):
    connection = http.client.HTTPConnection("localhost", port, timeout=120)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.fixture
def service(folder_and_embeddings):
    """The process of a service, and its port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, SCRIPT, folder_and_embeddings[0], str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                try:
                    assert request(port, "GET", "/health") == (200, {})
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            yield process, port
        finally:
            process.kill()


def memory_of(process):
    """Return the MiB that a process has in memory."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        pytest.skip("only Linux tells the memory of another process")
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 2**10


def test_many_clients_at_a_time(folder_and_embeddings, service):
    """Each answer is that of its own texts, and memory does not grow."""
    (_, embeddings), (process, port) = folder_and_embeddings, service

    def send(number):
        texts = [TEXTS[(number + i) % len(TEXTS)] for i in range(1 + number % 3)]
        status, found = request(port, "POST", body=json.dumps(texts))
        assert status == 200
        assert_close(np.array(found), np.array([embeddings[text] for text in texts]), 1e-5)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(send, range(WARM_UP)))
        before = memory_of(process)
        list(pool.map(send, range(REQUESTS)))
    # A kilobyte of each request that stays would be 5 MiB.
    assert memory_of(process) < before + 4, "the memory of the service grows with each request"


WRONG = {
    "not JSON": ("the fox", 400),
    "no list": ('"the fox"', 400),
    "an empty list": ("[]", 400),
    "an empty text": ('["the fox", ""]', 400),
    "a number": ('["the fox", 3]', 400),
    "half a surrogate pair": ('["\\ud800"]', 400),
    "too many texts": (json.dumps(["the"] * 33), 413),
    "a long text": (json.dumps(["the " * 12]), 413),
}


def test_wrong_requests(service):
    _, port = service
    for name, (body, expected) in WRONG.items():
        status, answer = request(port, "POST", body=body)
        assert (status, list(answer)) == (expected, ["error"]), name
        assert "1 to 32 texts of 1 to 13 tokens" in answer["error"], name
    assert request(port, "POST", headers={"Content-Length": "five"})[0] == 400
    # A part of a large body is read.
    large = {"Content-Length": "1000000000"}
    assert request(port, "POST", body="1" * 1_000_000, headers=large)[0] == 400
    assert request(port, "GET", "/elsewhere")[0] == 404
    # The longest text, and the service still answers.
    assert request(port, "POST", body=json.dumps(["the " * 11]))[0] == 200


def test_the_end_of_a_service(folder_and_embeddings, service):
    """A request that has arrived is answered after SIGTERM."""
    (_, embeddings), (process, port) = folder_and_embeddings, service
    body = json.dumps(TEXTS[:1]).encode()
    with socket.create_connection(("localhost", port)) as client:
        client.sendall(b"POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body))
        # The service has its thread for the request before it gets the signal.
        assert request(port, "GET", "/health") == (200, {})
        process.send_signal(signal.SIGTERM)
        client.sendall(body)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert process.wait(60) == 0
    found = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert_close(np.array(found), embeddings[TEXTS[0]][None], 1e-5)
