"""Threads, processes, and files made by both."""
import concurrent.futures
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading


def write(i):
    path = "t%d" % i
    os.makedirs(path, exist_ok=True)
    for n in range(5):
        with open("%s/%d" % (path, n), "w") as f:
            f.write(str(n))
    os.rename(path + "/0", path + "/zero")
    os.remove(path + "/1")


def square(n):
    with open("p%d" % n, "w") as f:
        f.write(str(n * n))
    return n * n


if __name__ == "__main__":
    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: subprocess.run(["cat", "t%d/zero" % n], stdout=subprocess.DEVNULL, check=True), range(4)))
    pool = multiprocessing.get_context("fork").Pool(2)
    pool.map(square, range(4))
    pool.close()  # with "with", a worker may be killed before it has begun
    pool.join()
    subprocess.run("echo sub > sub; exit 3", shell=True)
    subprocess.run([sys.executable, "-c", "import json, sqlite3; open('child', 'w').write(json.dumps([1]))"], check=True)
    for missing in (["no-such-program-at-all"], ["./t0"]):
        try:
            subprocess.run(missing)
        except OSError:
            pass
    with tempfile.TemporaryDirectory() as d:
        shutil.copytree("t0", d + "/copy")
        os.chmod(d + "/copy/zero", 0o400)
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    shutil.rmtree("t1")
    os.posix_spawn("/bin/true", ["true", ""], {})
    os.wait()
