"""Writes docs/api.md from the protos' own comments: `python proto/reference.py OUT`.

Needs grpcio-tools, as the stubs do; `make proto` runs both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

HERE = Path(__file__).parent
FILES = sorted(str(path.relative_to(HERE)) for path in HERE.glob("hotwired/**/*.proto"))
HEAD = """\
# API

Written by `make proto` from the protos in `proto/`; a test holds it to them. `hotwired.v1` is what
clients speak to the daemon; `hotwired.node.v1` is what the daemon speaks to vLLM's processes, and
no client's business.
"""

# The numbers of descriptor.proto's own fields, of which source locations are paths.
MESSAGE, ENUM, SERVICE = 4, 5, 6
FIELD, NESTED, NESTED_ENUM = 2, 3, 4
METHOD = VALUE = 2

Path_ = tuple[int, ...]


def main() -> None:
    """Write the reference."""
    text = "\n".join([HEAD, *(line for file in described() for line in Reference(file).lines())])
    Path(sys.argv[1]).write_text(text.rstrip() + "\n")


def described() -> list[FileDescriptorProto]:
    """Return the descriptors of our files, with their comments; those with services go first."""
    with tempfile.NamedTemporaryFile() as out:
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--include_source_info"]
        command += [f"--descriptor_set_out={out.name}", *FILES]
        subprocess.run(command, check=True, cwd=HERE)
        files = FileDescriptorSet.FromString(Path(out.name).read_bytes()).file
    return sorted(files, key=lambda f: (f.package.count("."), not f.service, f.name))


class Reference:
    """The reference of one file."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._comments = {
            tuple(at.path): at.leading_comments or at.trailing_comments
            for at in file.source_code_info.location
        }

    def lines(self) -> Iterator[str]:
        """Yield Markdown lines."""
        yield f"## {self._file.name}\n"
        for number, service in enumerate(self._file.service):
            yield from self._service((SERVICE, number), service)
        for number, message in enumerate(self._file.message_type):
            yield from self._message((MESSAGE, number), message, "")
        for number, enum in enumerate(self._file.enum_type):
            yield from self._enum((ENUM, number), enum, "")

    def _service(self, path: Path_, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"### service {service.name}\n\n{self._paragraphs(path)}"
        for number, method in enumerate(service.method):
            asks = f"{'stream ' * method.client_streaming}{_short(method.input_type)}"
            answers = f"{'stream ' * method.server_streaming}{_short(method.output_type)}"
            yield f"#### rpc {method.name}({asks}) returns ({answers})\n"
            yield self._paragraphs((*path, METHOD, number))

    def _message(self, path: Path_, message: DescriptorProto, within: str) -> Iterator[str]:
        if message.options.map_entry:
            return
        name = within + message.name
        yield f"### message {name}\n\n{self._paragraphs(path)}"
        if message.field:
            yield "| field | type | |\n|---|---|---|"
            for number, field in enumerate(message.field):
                comment = self._one_line((*path, FIELD, number))
                yield f"| `{field.name}` = {field.number} | {_type(field, message)} | {comment} |"
            yield ""
        for number, nested in enumerate(message.nested_type):
            yield from self._message((*path, NESTED, number), nested, f"{name}.")
        for number, enum in enumerate(message.enum_type):
            yield from self._enum((*path, NESTED_ENUM, number), enum, f"{name}.")

    def _enum(self, path: Path_, enum: EnumDescriptorProto, within: str) -> Iterator[str]:
        yield f"### enum {within}{enum.name}\n\n{self._paragraphs(path)}"
        yield "| value | |\n|---|---|"
        for number, value in enumerate(enum.value):
            comment = self._one_line((*path, VALUE, number))
            yield f"| `{value.name}` = {value.number} | {comment} |"
        yield ""

    def _paragraphs(self, path: Path_) -> str:
        lines = [line.strip() for line in self._comments.get(path, "").splitlines()]
        return "\n".join(lines).strip() + "\n"

    def _one_line(self, path: Path_) -> str:
        return " ".join(self._comments.get(path, "").split()).replace("|", "\\|")


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    for nested in message.nested_type:
        if nested.options.map_entry and field.type_name.endswith(f".{nested.name}"):
            key, value = nested.field
            return f"map<{_type(key, nested)}, {_type(value, nested)}>"
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    name = _short(field.type_name) if field.type_name else kind
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if field.proto3_optional else name


def _short(type_name: str) -> str:
    full = type_name.lstrip(".")
    return full if full.startswith("google.") else full.rpartition(".")[2]


if __name__ == "__main__":
    main()
