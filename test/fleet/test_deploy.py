# SPDX-License-Identifier: Apache-2.0
"""The files of deploy/fleet are what their systems expect, as far as that can be told here."""

import ast
import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

import edgefirst_ros
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "fleet"


def test_the_manifest_of_kubernetes_has_a_cluster_a_job_and_a_closed_scheduler():
    cluster, job, policy = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    assert cluster["spec"]["scheduler"]["service"]["type"] == "ClusterIP"
    (worker,) = cluster["spec"]["worker"]["spec"]["containers"]
    assert all(isinstance(argument, str) for argument in worker["args"])
    options = dict(zip(worker["args"], worker["args"][1:], strict=False))
    assert options["--nthreads"] == "1"
    name = cluster["metadata"]["name"]
    (command,) = (container["command"] for container in job["spec"]["template"]["spec"]["containers"])
    assert command[:3] == ["edgefirst-ros", "fleet", "convert"]
    assert command[-1] == f"tcp://{name}-scheduler:8786"
    assert policy["spec"]["podSelector"]["matchLabels"]["dask.org/cluster-name"] == name
    images = {worker["image"], cluster["spec"]["scheduler"]["spec"]["containers"][0]["image"]}
    assert {image.rpartition(":")[2] for image in images} == {edgefirst_ros.__version__}


def test_the_arguments_of_workers_and_schedulers_are_those_that_dask_takes():
    pytest.importorskip("distributed")
    verbs = {one.name: one.load() for one in entry_points(group="dask_cli")}
    assert "dask" in entry_points(group="console_scripts").names
    cluster, *_ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    (container,) = cluster["spec"]["worker"]["spec"]["containers"]
    program, verb, *arguments = container["args"]
    assert program == "dask"
    given = verbs[verb].make_context(verb, arguments).params
    most = int(given["resources"].removeprefix("MEM="))
    cores, memory = (container["resources"]["limits"][name] for name in ("cpu", "memory"))
    assert (given["n_workers"], given["nthreads"]) == (cores, 1)
    assert most * int(cores) <= int(memory.removesuffix("Gi")) << 30
    (container,) = cluster["spec"]["scheduler"]["spec"]["containers"]
    assert container["args"] == ["dask", "scheduler"]
    told = re.findall(
        r"`dask (worker|scheduler)([^`]*)`", (DEPLOY.parents[1] / "docs" / "how-to" / "fleet.md").read_text()
    )
    assert [verb for verb, _ in told] == ["scheduler", "worker"]
    for verb, options in told:
        verbs[verb].make_context(verb, options.split())


def test_the_script_for_slurm_is_python():
    ast.parse((DEPLOY / "slurm.py").read_text())


def test_a_container_file_begins_from_an_image_and_runs_as_no_root():
    lines = [line.split()[0] for line in (DEPLOY / "Containerfile").read_text().splitlines() if line[:1].isupper()]
    assert lines[0] == "FROM"
    assert lines[-1] == "USER"
    assert set(lines) <= {"FROM", "COPY", "RUN", "USER"}


def test_the_policy_of_the_bucket_gives_no_more_than_is_used(s3):
    policy = json.loads((DEPLOY / "bucket-policy.json").read_text())
    actions = {action for statement in policy["Statement"] for action in statement["Action"]}
    assert actions == {"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"}
    assert all("*" not in action for action in actions)
    s3.client.put_bucket_policy(Bucket="drives", Policy=json.dumps(policy))
    lifecycle = json.loads((DEPLOY / "lifecycle.json").read_text())
    s3.client.put_bucket_lifecycle_configuration(Bucket="drives", LifecycleConfiguration=lifecycle)
    (rule,) = s3.client.get_bucket_lifecycle_configuration(Bucket="drives")["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    assert open_store(Location.of("s3://drives")).stat("nothing") is None
