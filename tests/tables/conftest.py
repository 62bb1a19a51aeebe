"""A Spark cluster of one master and one worker on loopback, as its own scripts start it."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest


def _absent(what, cure):
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI=true: {cure}")
    pytest.skip(f"{what} is missing: {cure}")


@pytest.fixture(scope="session")
def spark_home():
    try:
        import pyspark
    except ImportError:
        _absent("PySpark", "pip install -r requirements/spark.txt")
    if shutil.which("java") is None:
        _absent("Java", "run scripts/install-system-packages")
    return Path(pyspark.__file__).parent


@pytest.fixture(scope="session")
def spark_url(spark_home, tmp_path_factory):
    """The address of the master, once its worker has registered."""
    folder = tmp_path_factory.mktemp("spark")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "worker.log"
    master = _started(spark_home, folder, "master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    address = f"spark://127.0.0.1:{port}"
    options = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(folder))
    worker = None
    try:
        _wait_for_port(port)
        worker = _started(spark_home, folder, "worker", *options, address)
        _wait_for_text(log, "Successfully registered with master")
        yield address
    finally:
        for process in (worker, master):
            if process is not None:
                process.kill()
                process.wait()


def _started(home, folder, role, *options):
    """Run the class that sbin/start-master.sh and start-worker.sh run, in the foreground."""
    name = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
    command = [str(home / "bin" / "spark-class"), name, *options]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "400m"}
    with (folder / f"{role}.log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def _wait_for_port(port):
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the Spark master did not start")


def _wait_for_text(file, text):
    for _ in range(600):
        if file.is_file() and text in file.read_text():
            return
        time.sleep(0.1)
    raise TimeoutError(f"{file.name} never said {text!r}")
