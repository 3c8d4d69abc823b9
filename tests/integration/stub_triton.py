"""A stand-in for Triton that misbehaves on demand: the KServe v2 gRPC service, in this process.

Its model takes images [8, 8, 3] and tells what it saw: class ``k`` wins when the image's mean red is nearest to
``16 * k + 8``. So an answer tells whose image was looked at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
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

from worker.contract import DTYPES, Datatype

MODEL = "stub"
CLASSES = 16
SIDE = 8


def image_of(class_id: int, *, others: int = 0) -> bytes:
    """A PNG that the stub answers with ``class_id``; ``others`` is its green and blue."""
    buffer = BytesIO()
    Image.new("RGB", (SIDE, SIDE), (16 * class_id + 8, others, others)).save(buffer, "PNG")
    return buffer.getvalue()


def stripes(class_ids: Sequence[int]) -> bytes:
    """A PNG of one upright stripe, as wide as the stub's images, for each class, from left to right."""
    image = Image.new("RGB", (SIDE * len(class_ids), SIDE))
    for index, class_id in enumerate(class_ids):
        image.paste((16 * class_id + 8, 0, 0), (SIDE * index, 0, SIDE * (index + 1), SIDE))
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@dataclass(frozen=True)
class Call:
    """One inference request as it arrived.

    Attributes:
        size: images in it.
        datatype: of the input, as the request names it.
        data: the input's bytes.
    """

    model: str
    size: int
    datatype: str
    data: bytes
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


def slow(seconds: float) -> Behaviour:
    """A behaviour that answers well after so long, as a large model does."""

    def behaviour(_call: Call, _context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        time.sleep(seconds)
        return scores

    return behaviour


@dataclass
class StubTriton:
    """The service and its script.

    Attributes:
        models: the names that its one model goes by.
        side: of its images, in pixels.
        datatype: of its input.
        extensions: whether it has what Triton adds to the protocol: index, configuration, classification.
        message_bytes: the largest message that it takes; -1 for any.
        behaviour: what each inference call meets.
        version_of: which version answers a call.
        ready: whether the model is.
        calls: every inference call so far.
        frozen: the process is, as by SIGSTOP: whatever is asked is not answered.
        probes: how often the repository index was asked for, and at which times by ``time.monotonic``.
        deadlines: of every question of any kind so far, in seconds, by the method's name.
    """

    port: int = 0
    host: str = "127.0.0.1"
    max_batch: int = 8
    models: tuple[str, ...] = (MODEL,)
    side: int = SIDE
    datatype: Datatype = "UINT8"
    extensions: bool = True
    message_bytes: int = -1
    behaviour: Behaviour = answer
    version_of: Callable[[Call], str] = lambda call: call.version or "1"
    ready: bool = True
    calls: list[Call] = field(default_factory=list)
    frozen: threading.Event = field(default_factory=threading.Event)
    probes: int = 0
    probed_at: list[float] = field(default_factory=list)
    deadlines: list[tuple[str, float | None]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _server: Any = None

    @property
    def url(self) -> str:
        """Its gRPC address, the same over all its lives."""
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Serve, also again."""
        options = [("grpc.max_receive_message_length", self.message_bytes)]
        self._server = grpc.server(ThreadPoolExecutor(max_workers=64), options=options, interceptors=[_Witness(self)])
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service(self), self._server)
        self.port = self._server.add_insecure_port(f"{self.host}:{self.port}")
        self._server.start()

    def stop(self) -> None:
        """Be gone: nothing answers at the address."""
        self._server.stop(grace=0).wait(5)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Answer no call while the block runs: what is submitted in it is there before another call has ended."""
        go = threading.Event()
        behaviour, self.behaviour = self.behaviour, hold(go, 30)
        try:
            yield
        finally:
            self.behaviour = behaviour
            go.set()

    @property
    def sizes(self) -> list[int]:
        """The batch sizes of the calls so far, without those that warm the model up."""
        return [call.size for call in self.calls]


class _Witness(grpc.ServerInterceptor):  # type: ignore[misc]  # grpc is untyped
    """Notes the deadline of every question, and keeps it from an answer while the stub is frozen."""

    def __init__(self, stub: StubTriton) -> None:
        self._stub = stub

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler

        def witnessed(request: Any, context: Any) -> Any:
            deadline = context.time_remaining()
            self._stub.deadlines.append((details.method.rpartition("/")[2], deadline))
            while self._stub.frozen.is_set() and context.is_active():
                time.sleep(0.02)
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            witnessed,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


class _Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # generated, untyped
    def __init__(self, stub: StubTriton) -> None:
        self._stub = stub

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerLiveResponse(live=True)

    def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol's names
        return service_pb2.ServerReadyResponse(ready=True)

    def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._stub.probes += 1
        self._stub.probed_at.append(time.monotonic())
        self._need_extensions(context)
        state = "READY" if self._stub.ready else "UNAVAILABLE"
        rows = [
            service_pb2.RepositoryIndexResponse.ModelIndex(name=name, version="1", state=state, reason="")
            for name in self._stub.models
        ]
        return service_pb2.RepositoryIndexResponse(models=rows)

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return service_pb2.ModelReadyResponse(ready=self._stub.ready and request.name in self._stub.models)

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._need_extensions(context)
        side = self._stub.side
        kind = model_config_pb2.DataType.Value(f"TYPE_{self._stub.datatype}")
        config = model_config_pb2.ModelConfig(
            name=request.name,
            max_batch_size=self._stub.max_batch,
            input=[model_config_pb2.ModelInput(name="image", data_type=kind, dims=[side, side, 3])],
            output=[model_config_pb2.ModelOutput(name="scores", data_type=model_config_pb2.TYPE_FP32, dims=[CLASSES])],
        )
        config.parameters["tidegate.scores"].string_value = "logits"
        return service_pb2.ModelConfigResponse(config=config)

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.name not in self._stub.models:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' is not found")
        tensor = service_pb2.ModelMetadataResponse.TensorMetadata
        side = self._stub.side
        return service_pb2.ModelMetadataResponse(
            name=request.name,
            versions=["1"],
            inputs=[tensor(name="image", datatype=self._stub.datatype, shape=[-1, side, side, 3])],
            outputs=[tensor(name="scores", datatype="FP32", shape=[-1, CLASSES])],
        )

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        asked = request.inputs[0]
        images = np.frombuffer(request.raw_input_contents[0], DTYPES[self._stub.datatype]).reshape(list(asked.shape))
        seen = np.clip(images[..., 0].astype(np.float32).mean(axis=(1, 2)) // 16, 0, CLASSES - 1).astype(int)
        if self._stub.extensions and "classification" in request.outputs[0].parameters:
            return self._labels(len(seen))
        call = Call(
            model=request.model_name,
            size=len(seen),
            datatype=asked.datatype,
            data=request.raw_input_contents[0],
            version=request.model_version,
            classes=tuple(seen),
            deadline_seconds=context.time_remaining(),
            at=time.monotonic(),
        )
        with self._stub.lock:
            self._stub.calls.append(call)
        scores = np.zeros((len(seen), CLASSES), np.float32)
        scores[np.arange(len(seen)), seen] = 8.0
        return _response(self._stub.behaviour(call, context, scores), self._stub.version_of(call))

    def _need_extensions(self, context: Any) -> None:
        if not self._stub.extensions:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    def _labels(self, count: int) -> Any:
        rows = [f"{0:.6f}:{index}:label{index}".encode() for index in range(CLASSES)] * count
        raw = b"".join(len(row).to_bytes(4, "little") + row for row in rows)
        output = service_pb2.ModelInferResponse.InferOutputTensor(
            name="scores", datatype="BYTES", shape=[count, CLASSES]
        )
        return service_pb2.ModelInferResponse(
            model_name=MODEL, model_version="1", outputs=[output], raw_output_contents=[raw]
        )


def _response(scores: NDArray[np.float32], version: str) -> Any:
    output = service_pb2.ModelInferResponse.InferOutputTensor(name="scores", datatype="FP32", shape=list(scores.shape))
    return service_pb2.ModelInferResponse(
        model_name=MODEL,
        model_version=version,
        outputs=[output],
        raw_output_contents=[scores.astype(np.float32).tobytes()],
    )


@contextmanager
def running_stub(**fields: Any) -> Iterator[StubTriton]:
    """Serve a stub on loopback; the fields are its own."""
    stub = StubTriton(**fields)
    stub.start()
    try:
        yield stub
    finally:
        stub.stop()
