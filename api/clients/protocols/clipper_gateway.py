import requests
from clipper_admin import ClipperConnection, ClipperException
from clipper_admin.container_manager import ContainerManager


class Gateway(ContainerManager):
    """A gateway that runs. It starts and ends replicas itself, so there is nothing to do for a model that comes or goes."""

    cluster_identifier = "gateway"

    def __init__(self, query="localhost:1337", admin="localhost:1338"):
        self.query, self.admin = query, admin

    def get_query_addr(self):
        return self.query

    def get_admin_addr(self):
        return self.admin

    def get_metric_addr(self):
        return self.admin

    def connect(self):
        requests.get(f"http://{self.admin}/admin/ping", timeout=10).raise_for_status()

    def deploy_model(self, name, version, input_type, image, num_replicas=1):
        pass

    def stop_models(self, models):
        pass

    def get_num_replicas(self, name, version):
        r = requests.post(f"http://{self.admin}/admin/get_all_containers", json={"verbose": True}, timeout=10)
        return sum(c["model_id"] == f"{name}:{version}" for c in r.json())

    def set_num_replicas(self, name, version, input_type, image, num_replicas):
        raise ClipperException(f"use: xebec scale {name}@{version} --min {num_replicas} --max {num_replicas}")


def connect(query="localhost:1337", admin="localhost:1338"):
    connection = ClipperConnection(Gateway(query, admin))
    connection.connect()
    return connection
