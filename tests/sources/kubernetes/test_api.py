import sys

import pytest
from tests.kube_cluster import dump
from tests.sources.kube_server import api_server, kubeconfig

from trimtab.errors import CredentialsError, InputError, SourceError
from trimtab.sources.kubernetes.api import cluster_api
from trimtab.sources.kubernetes.objects import Objects

PODS, NODES, JOBS = "/api/v1/pods", "/api/v1/nodes", "/apis/batch/v1/jobs"


@pytest.fixture
def server(tmp_path):
    with api_server() as (script, url):
        script.kubeconfig = kubeconfig(tmp_path, url)
        script.url = url
        script.pauses = []
        yield script


def read(server, *, page=500, timeout_s=5.0):
    with cluster_api("here", server.kubeconfig, timeout_s=timeout_s) as api:
        api.page = page
        api.pause = server.pauses.append
        return api.read()


def identities(objects):
    return {
        (kind, key[1:], tuple(sorted(one["metadata"])))
        for kind, mine in objects.by_kind.items()
        for key, one in mine.items()
    }


def test_a_live_cluster_and_its_dump_tell_the_same(server):
    dumped = Objects()
    dumped.take(dump())

    assert identities(read(server)) == identities(dumped)


def test_pages_are_followed_to_the_last(server):
    found = read(server, page=1)

    asked = [parameters for path, parameters in server.seen if path == PODS]
    assert len(list(found.of("Pod"))) == 4
    assert [one.get("continue") for one in asked] == [None, "1", "2", "3"]


def test_a_list_whose_token_is_too_old_is_read_again_from_its_beginning(server):
    server.faults[PODS] = [None, None, 410]

    found = read(server, page=1)

    assert len(list(found.of("Pod"))) == 4
    assert [parameters.get("continue") for path, parameters in server.seen if path == PODS].count(None) == 2


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_passes_is_tried_again(server, status):
    server.faults[NODES] = [status, status]

    assert len(list(read(server).of("Node"))) == 2
    assert server.pauses == [0.5, 1.0]


def test_the_server_says_how_long_to_wait(server):
    server.faults[NODES] = [429]
    server.headers["Retry-After"] = "7"

    read(server)

    assert server.pauses == [7.0]


def test_a_slow_answer_is_tried_again(server):
    server.faults[NODES] = [1.0]

    assert len(list(read(server, timeout_s=0.2).of("Node"))) == 2


def test_a_server_that_stays_broken_names_the_resource_and_the_cure(server):
    server.faults[PODS] = [500] * 20

    with pytest.raises(SourceError, match=r"listing pods failed 5 times.*HTTP 500: scripted 500.*--kube-dump"):
        read(server)


def test_a_server_that_never_answers_says_so(server):
    server.faults[NODES] = [1.0] * 9

    with pytest.raises(SourceError, match=r"listing nodes.*no answer in time"):
        read(server, timeout_s=0.05)


def test_bad_credentials_are_an_error_of_credentials(server, tmp_path):
    server.kubeconfig = kubeconfig(tmp_path, server.url, token="wrong")

    with pytest.raises(CredentialsError, match=r"not signed in while listing nodes.*renew") as raised:
        read(server)
    assert raised.value.exit_code == 3


def test_pods_that_may_not_be_listed_stop_with_the_role_to_grant(server):
    server.faults[PODS] = [403]

    with pytest.raises(CredentialsError, match=r"not allowed to list pods.*trimtab collect --rbac"):
        read(server)


def test_another_resource_that_may_not_be_listed_is_counted_with_what_is_not_known(server):
    server.faults[JOBS] = [403]

    found = read(server)

    assert list(found.of("Job", "batch")) == []
    assert any(reason.startswith("resource jobs.batch that may not be listed") for reason in found.counts)


def test_an_older_version_of_a_custom_resource_is_found(server):
    assert len(list(read(server).of("ClusterQueue"))) == 1


def test_a_sign_in_page_instead_of_a_list_is_named(server):
    server.faults[NODES] = ["<html>sign in</html>"]

    with pytest.raises(SourceError, match=r"the list of nodes is not JSON.*sign-in page"):
        read(server)


def test_an_address_that_is_no_api_server_is_named(server):
    server.lists.clear()

    with pytest.raises(SourceError, match="no nodes there"):
        read(server)


def test_an_unknown_context_names_the_command_that_lists_them(server):
    with pytest.raises(InputError, match="kubectl config get-contexts"), cluster_api("there", server.kubeconfig):
        pass


def test_a_closed_port_is_an_error_of_the_source(tmp_path):
    file = kubeconfig(tmp_path, "http://127.0.0.1:9")

    with cluster_api(None, file) as api:
        api.pause = lambda seconds: None
        with pytest.raises(SourceError, match="listing nodes failed"):
            api.read()


def test_without_lightkube_the_cure_and_the_other_way_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightkube.config", None)

    with pytest.raises(InputError, match=r"trimtab\[kubernetes\].*--kube-dump"), cluster_api():
        pass
