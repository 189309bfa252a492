# SPDX-License-Identifier: Apache-2.0
"""Program that writes new files from a pipe, for `output.write_files`; with few imports, so that it starts at once."""

import os
import struct
import sys

HEAD = struct.Struct("<IQ")
"""Number of bytes of a path, and of the data; both follow."""
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def main() -> None:
    """Write files until the pipe ends; say the number of the error and the path of one that cannot be written."""
    pipe = sys.stdin.buffer
    while len(head := pipe.read(HEAD.size)) == HEAD.size:
        named, size = HEAD.unpack(head)
        path, data = pipe.read(named), memoryview(pipe.read(size))
        try:
            fd = os.open(path, NEW_FILE, 0o666)
            while data:
                data = data[os.write(fd, data) :]
            os.close(fd)
        except OSError as error:
            os.write(1, b"%d %s" % (error.errno or 0, path))
            return


if __name__ == "__main__":
    main()
