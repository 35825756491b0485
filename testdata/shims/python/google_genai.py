"""A google-genai agent that reports its tool calls: the manual function calling
loop. A replayed answer takes the place of the model, so that neither the
package nor a network is needed.

    python3 google_genai.py FILE...
"""

import subprocess
import sys
from types import SimpleNamespace as Answer

from assay_shim import AssayShim

try:
    from google.genai import __version__ as version
except ImportError:
    version = "replayed"

shim = AssayShim("google-genai", "google-genai", version)


def read_file(path, env):
    return subprocess.run(["cat", "--", path], env=env, check=True, capture_output=True, text=True).stdout


TOOLS = {"read_file": read_file}


def generate_content(contents):
    """client.models.generate_content, replayed."""
    if len(contents) > 1:
        return Answer(function_calls=[], text="done")
    paths = sys.argv[1:] or ["/etc/hostname"]
    return Answer(
        text=None,
        function_calls=[Answer(id=f"fc_{i}", name="read_file", args={"path": p}) for i, p in enumerate(paths, 1)],
    )


def main():
    contents = ["Read the files."]
    while True:
        response = generate_content(contents)
        if not response.function_calls:
            return response.text
        for call in response.function_calls:
            with shim.call(call.id, call.name) as env:
                contents.append({"name": call.name, "response": TOOLS[call.name](**call.args, env=env)})


try:
    print(main())
    shim.finished()
except BaseException:
    shim.failed()
    raise
