"""What both clients do with the messages of a download: put together and check them."""

import hashlib
from dataclasses import dataclass

import grpc

from hotwire_client import errors, requests
from hotwired.v1.steering_service_pb2 import DownloadVectorHeader, DownloadVectorResponse
from hotwired.v1.vector_pb2 import Vector


@dataclass(frozen=True, slots=True)
class Download:
    """A vector's bytes.

    Attributes:
        vector: The vector as the daemon has it.
        revision: The sha256 of the bytes: the vector's revision, or that of its canary.
        data: A safetensors file with one tensor F32 [layers, hidden].
    """

    vector: Vector
    revision: str
    data: bytes


class Assembly:
    """Takes the messages of a download one by one."""

    def __init__(self) -> None:
        self._header: DownloadVectorHeader | None = None
        self._body = bytearray()

    def take(self, message: DownloadVectorResponse) -> None:
        """Takes the next message.

        Raises:
            DataLossError: It is not the header where that is due, or there are too many bytes.
        """
        if self._header is None:
            if message.WhichOneof("payload") != "header":
                raise _damaged("the first message of the download is not its header")
            self._header = message.header
            return
        self._body += message.chunk
        if len(self._body) > min(self._header.size_bytes, requests.MAX_FILE_BYTES):
            raise _damaged("the download is longer than it said, or than a vector can be")

    def whole(self) -> Download:
        """Returns what came, once the last message was taken.

        Raises:
            DataLossError: The bytes have not the size or the digest that was stated.
        """
        header, data = self._header, bytes(self._body)
        if header is None or len(data) != header.size_bytes:
            raise _damaged("the download was cut short")
        if hashlib.sha256(data).hexdigest() != header.sha256:
            raise _damaged("the bytes have not the digest that the daemon stated")
        return Download(header.vector, header.sha256, data)


def _damaged(message: str) -> errors.HotwireError:
    return errors.make(grpc.StatusCode.DATA_LOSS, "DOWNLOAD_DAMAGED", message)
