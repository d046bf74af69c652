import os
import signal
import sys

import ray
from ray import serve

sys.path.insert(0, os.environ["PEER_DIR"])

if __name__ == "__main__":
    cores = int(os.environ["PEER_CORES"])
    ray.init(
        num_cpus=cores + 1,
        include_dashboard=False,
        object_store_memory=256 << 20,
        log_to_driver=False,
        _temp_dir=os.path.join(os.getcwd(), "r"),
    )
    serve.start(
        http_options={"host": "127.0.0.1", "port": int(os.environ["PEER_PORT"])},
        logging_config={"enable_access_log": False},
    )
    import server

    serve.run(server.app, route_prefix="/predict")
    signal.sigwait([signal.SIGTERM, signal.SIGINT])
    ray.shutdown()
