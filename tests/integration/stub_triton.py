"""A stand-in for Triton that misbehaves on demand: the KServe v2 gRPC service, in this process.

Its one model takes uint8 images [8, 8, 3] and tells what it saw: class ``k`` wins when the image's mean red is
nearest to ``16 * k + 8``. So an answer tells whose image was looked at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

MODEL = "stub"
CLASSES = 16
SIDE = 8


def image_of(class_id: int) -> bytes:
    """A PNG that the stub answers with ``class_id``."""
    buffer = BytesIO()
    Image.new("RGB", (SIDE, SIDE), (16 * class_id + 8, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


@dataclass(frozen=True)
class Call:
    """One inference request as it arrived."""

    size: int
    version: str
    classes: tuple[int, ...]
    deadline_seconds: float
    at: float


#: Looks at a call before it is answered; may sleep, abort the call through the context, or change the answer.
Behaviour = Callable[[Call, Any, NDArray[np.float32]], "NDArray[np.float32]"]


def answer(_call: Call, _context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Answer as a good model would."""
    return scores


def hold(until: threading.Event, seconds: float) -> Behaviour:
    """A behaviour that answers well, but not before the event or the time."""

    def behaviour(_call: Call, _context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        until.wait(seconds)
        return scores

    return behaviour


@dataclass
class StubTriton:
    """The service and its script.

    Attributes:
        behaviour: what each inference call meets.
        ready: whether the model is.
        calls: every inference call so far.
        probes: how often the repository index was asked for.
    """

    port: int = 0
    max_batch: int = 8
    behaviour: Behaviour = answer
    ready: bool = True
    calls: list[Call] = field(default_factory=list)
    probes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    _server: Any = None

    @property
    def url(self) -> str:
        """Its gRPC address, the same over all its lives."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve, also again."""
        self._server = grpc.server(ThreadPoolExecutor(max_workers=16))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service(self), self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        """Be gone: nothing answers at the address."""
        self._server.stop(grace=0).wait(5)

    @property
    def sizes(self) -> list[int]:
        """The batch sizes of the calls so far, without those that warm the model up."""
        return [call.size for call in self.calls]


class _Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # generated, untyped
    def __init__(self, stub: StubTriton) -> None:
        self._stub = stub

    def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol's names
        return service_pb2.ServerReadyResponse(ready=True)

    def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._stub.probes += 1
        row = service_pb2.RepositoryIndexResponse.ModelIndex(
            name=MODEL, version="1", state="READY" if self._stub.ready else "UNAVAILABLE", reason=""
        )
        return service_pb2.RepositoryIndexResponse(models=[row])

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        config = model_config_pb2.ModelConfig(
            name=MODEL,
            max_batch_size=self._stub.max_batch,
            input=[
                model_config_pb2.ModelInput(name="image", data_type=model_config_pb2.TYPE_UINT8, dims=[SIDE, SIDE, 3])
            ],
            output=[model_config_pb2.ModelOutput(name="scores", data_type=model_config_pb2.TYPE_FP32, dims=[CLASSES])],
        )
        config.parameters["tidegate.scores"].string_value = "logits"
        return service_pb2.ModelConfigResponse(config=config)

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        tensor = service_pb2.ModelMetadataResponse.TensorMetadata
        return service_pb2.ModelMetadataResponse(
            name=MODEL,
            versions=["1"],
            inputs=[tensor(name="image", datatype="UINT8", shape=[-1, SIDE, SIDE, 3])],
            outputs=[tensor(name="scores", datatype="FP32", shape=[-1, CLASSES])],
        )

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        shape = list(request.inputs[0].shape)
        images = np.frombuffer(request.raw_input_contents[0], np.uint8).reshape(shape)
        seen = np.clip(images[..., 0].mean(axis=(1, 2)) // 16, 0, CLASSES - 1).astype(int)
        if "classification" in request.outputs[0].parameters:
            return self._labels(len(seen))
        call = Call(shape[0], request.model_version, tuple(seen), context.time_remaining(), time.monotonic())
        with self._stub.lock:
            self._stub.calls.append(call)
        scores = np.zeros((len(seen), CLASSES), np.float32)
        scores[np.arange(len(seen)), seen] = 8.0
        return _response(self._stub.behaviour(call, context, scores))

    def _labels(self, count: int) -> Any:
        rows = [f"{0:.6f}:{index}:label{index}".encode() for index in range(CLASSES)] * count
        raw = b"".join(len(row).to_bytes(4, "little") + row for row in rows)
        output = service_pb2.ModelInferResponse.InferOutputTensor(
            name="scores", datatype="BYTES", shape=[count, CLASSES]
        )
        return service_pb2.ModelInferResponse(
            model_name=MODEL, model_version="1", outputs=[output], raw_output_contents=[raw]
        )


def _response(scores: NDArray[np.float32]) -> Any:
    output = service_pb2.ModelInferResponse.InferOutputTensor(name="scores", datatype="FP32", shape=list(scores.shape))
    return service_pb2.ModelInferResponse(
        model_name=MODEL,
        model_version="1",
        outputs=[output],
        raw_output_contents=[scores.astype(np.float32).tobytes()],
    )


@contextmanager
def running_stub(*, max_batch: int = 8) -> Iterator[StubTriton]:
    """Serve a stub on loopback."""
    stub = StubTriton(max_batch=max_batch)
    stub.start()
    try:
        yield stub
    finally:
        stub.stop()
