"""A google-genai agent with automatic function calling that reports its tool
calls. gemini.py takes the place of the model, so that no network is needed.

    python3 gemini.py python3 google_genai.py FILE...
"""

import subprocess
import sys

from assay_shim import AssayShim
from google import genai
from google.genai import types

shim = AssayShim("google-genai", "google-genai", genai.__version__)


@shim.tool
def read_file(path: str) -> str:
    """Reads a file."""
    return subprocess.run(["cat", "--", path], env=shim.env(), check=True, capture_output=True, text=True).stdout


try:
    answer = genai.Client().models.generate_content(
        model="gemini-2.5-flash",
        contents="\n".join(["Read the files.", *(sys.argv[1:] or ["/etc/hostname"])]),
        config=types.GenerateContentConfig(tools=[read_file]),
    )
    print(answer.text)
    shim.finished()
except BaseException:
    shim.failed()
    raise
