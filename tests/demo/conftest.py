import httpx
import pytest
from support.demo_server import WINDOW
from support.serving import serving
from support.upstream import scripted
from support.waiting import PATIENCE_SECONDS

from proxy.demo import create_model_server


@pytest.fixture(autouse=True)
def as_who_watches_sees_it(counted_as_gpt_4o):
    """The demo counts here as it does everywhere."""


@pytest.fixture
def server():
    """A client of the embedded model server."""
    with (
        serving(create_model_server(WINDOW, scripted)) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS, verify=False) as client,
    ):
        yield client
