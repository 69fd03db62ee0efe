"""The service of lesson 9: answers to many clients at a time, wrong requests, and its end."""

import concurrent.futures
import contextlib
import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_diet.models import (
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
    DietBertTokenizer,
)
from tests.helpers import assert_close
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.any_backend

SCRIPT = Path(__file__).parents[2] / "examples/serve.py"
CLIENTS, WARM_UP, REQUESTS = 16, 200, 1000
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


@contextlib.contextmanager
def running(folder):
    """The process of a service, and its port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, SCRIPT, folder, str(port)]
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


@pytest.fixture
def service(folder_and_embeddings):
    with running(folder_and_embeddings[0]) as process_and_port:
        yield process_and_port


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
    # Four kilobytes of each request that stay would be 4 MiB.
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
        assert "1 to 32 texts, or pairs of texts, of 1 to 13 tokens" in answer["error"], name
    assert request(port, "POST", headers={"Content-Length": "five"})[0] == 400
    for size in (1_000_001, 2_000_000, 50_000_000):
        assert request(port, "POST", body="1" * size)[0] == 413, f"{size} bytes"
    # The answer does not wait for bytes that the client has announced.
    large = {"Content-Length": "1000000000"}
    assert request(port, "POST", body="1" * 1_000_000, headers=large)[0] == 413
    assert request(port, "GET", "/elsewhere")[0] == 404
    # The most texts of the longest kind, and the service still answers.
    assert request(port, "POST", body=json.dumps(["the " * 11] * 32))[0] == 200


def test_the_end_of_a_service(folder_and_embeddings, service):
    """Requests that have arrived are answered after SIGTERM, and idle clients do not delay it."""
    (_, embeddings), (process, port) = folder_and_embeddings, service
    body = json.dumps(TEXTS[:1]).encode()
    head = b"POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    with contextlib.ExitStack() as stack:
        _, started, *waiting = (
            stack.enter_context(socket.create_connection(("localhost", port), timeout=60))
            for _ in range(100)
        )
        started.sendall(head)
        # The service has its thread for the request before it gets the signal.
        assert request(port, "GET", "/health") == (200, {})
        # It accepts no connection before the signal.
        process.send_signal(signal.SIGSTOP)
        waiting += (
            stack.enter_context(socket.create_connection(("localhost", port), timeout=60))
            for _ in range(100)
        )
        for client in waiting:
            client.sendall(head + body)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        started.sendall(body)
        for client in (started, *waiting):
            answer = b"".join(iter(lambda client=client: client.recv(4096), b""))
            assert answer, "a request that has arrived is lost"
            found = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert_close(np.array(found), embeddings[TEXTS[0]][None], 1e-5)
        assert process.wait(60) == 0, "a connection without a request keeps the process alive"


def test_an_error_of_the_program(folder_and_embeddings, tmp_path):
    """It is the answer to the request, and the service goes on."""
    folder = shutil.copytree(folder_and_embeddings[0], tmp_path / "folder")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    # The program has no vector of this token.
    tokenizer["model"]["vocab"]["bird"] = 1000
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with running(folder) as (_, port):
        status, answer = request(port, "POST", body='["a bird"]')
        assert (status, list(answer)) == (500, ["error"])
        assert request(port, "POST", body='["a cat"]')[0] == 200


def test_a_classifier_of_pairs(tmp_path):
    """Special tokens in a text are what the tokenizer in Keras takes them for."""
    tokenizer = DietBertTokenizer(VOCABULARY, special_tokens_in_strings=True)
    preprocessor = DietBertTextClassifierPreprocessor(tokenizer, 13)
    classifier = DietBertTextClassifier(tiny_backbone(), 3, preprocessor)
    randomize_weights(classifier).export_to_hugging_face(tmp_path, onnx=True)
    pairs = (["the [MASK] fox", "a cat sleeping"], ["the red dog", "birds"])
    expected = classifier.predict(pairs, verbose=0)
    with running(tmp_path) as (_, port):
        body = json.dumps(list(zip(*pairs, strict=True)))
        status, found = request(port, "POST", body=body)
        assert status == 200
        assert_close(np.array(found), np.asarray(expected), 1e-5)
        assert request(port, "POST", body='[["the fox", "the", "a"]]')[0] == 400


@pytest.mark.parametrize(
    "name, source", [("start_logits", "sentence_embedding"), ("logits", "last_hidden_state")]
)
def test_a_task_without_one_vector_for_each_text(name, source, folder_and_embeddings, tmp_path):
    """The outputs are those of a question answerer and of a token classifier."""
    folder = shutil.copytree(folder_and_embeddings[0], tmp_path / "folder")
    model = onnx.load(folder / "onnx/model.onnx")
    outputs = model.graph.output
    (output,) = (each for each in outputs if each.name == source)
    model.graph.node.append(onnx.helper.make_node("Identity", [source], [name]))
    del outputs[:]
    output.name = name
    outputs.append(output)
    onnx.save(model, folder / "onnx/model.onnx")
    # A service that started would not end.
    result = subprocess.run(
        [sys.executable, SCRIPT, folder, "0"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 1
    assert "one vector for each text" in result.stderr
