"""The socket of a node: private, never stolen, gone when the server is."""

import socket
import stat
from pathlib import Path

import grpc
import pytest

from hotwire_plugin.node_service import Node, NodeServer
from hotwired.errors import DirectoryUnsafe, SocketInUse, SocketInvalid
from hotwired.node.v1 import node_pb2, node_pb2_grpc
from hotwired.run_dir import socket_path


def a_server(path: Path) -> NodeServer:
    """Returns a server that isn't started."""
    return NodeServer(Node(instance_id="i1", roles={"engine"}), path)


def mode(path: Path) -> int:
    """Returns a path's permission bits."""
    return stat.S_IMODE(path.lstat().st_mode)


def test_socket_and_folders_are_private_and_the_socket_goes(short_dir: Path) -> None:
    """Only the owner and its group get in; a stopped server leaves no socket."""
    path = socket_path(short_dir / "run", "i1", "engine", 0, 0, 0)
    server = a_server(path)
    server.start()
    assert mode(path) == 0o660
    assert {mode(folder) for folder in path.parents[:3]} == {0o750}
    with grpc.insecure_channel(f"unix:{path}") as channel:
        stub = node_pb2_grpc.NodeServiceStub(channel)
        assert stub.Describe(node_pb2.DescribeRequest(), timeout=5).instance_id == "i1"
    server.stop()
    assert not path.exists()


def test_a_stale_socket_is_replaced(short_dir: Path) -> None:
    """What a dead process left behind is in nobody's way."""
    path = short_dir / "x.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = a_server(path)
    server.start()
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
    server.stop()
    assert not path.exists()


def test_a_live_socket_is_not_stolen(short_dir: Path) -> None:
    """Unasked, gRPC would take the socket over in silence; we refuse, the first serves on."""
    path = short_dir / "x.sock"
    first = a_server(path)
    first.start()
    with pytest.raises(SocketInUse):
        a_server(path).start()
    with grpc.insecure_channel(f"unix:{path}") as channel:
        stub = node_pb2_grpc.NodeServiceStub(channel)
        assert stub.Describe(node_pb2.DescribeRequest(), timeout=5).pid
    first.stop()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_socket_stays(short_dir: Path, kind: str) -> None:
    """A file or a link at the socket's path is refused and left as it is."""
    path = short_dir / "x.sock"
    if kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to(short_dir / "elsewhere")
    with pytest.raises(SocketInvalid):
        a_server(path).start()
    assert path.is_symlink() or path.read_text() == "mine"


def test_a_folder_that_others_can_write_is_refused(short_dir: Path) -> None:
    """Whoever can write to the folder could put a socket of their own there."""
    folder = short_dir / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(DirectoryUnsafe):
        a_server(folder / "x.sock").start()
    link = short_dir / "link"
    link.symlink_to(short_dir)
    with pytest.raises(DirectoryUnsafe):
        a_server(link / "x.sock").start()


def test_a_path_too_long_is_named(short_dir: Path) -> None:
    """The limit of 107 bytes is in the message, instead of a truncated path."""
    with pytest.raises(SocketInvalid, match="107"):
        a_server(short_dir / ("x" * 120)).start()
