import httpx
import pytest

from proxy.app import create_app
from proxy.config import Settings
from proxy.shell.operator import NONCE_HEADER, PROOF_HEADER, is_proven, proof_of

TOKEN, NONCE = "token-of-this-run", "nonce"


async def asked(folder, headers, *, query="", client="127.0.0.1", token=TOKEN, **server):
    settings = Settings(
        upstream={"base_url": "http://127.0.0.1:9/v1"},
        data_dir=folder,
        models=[{"match": "small", "context_window": 8000}],
        server=server,
    )
    app = create_app(settings, token=token)
    inside = httpx.ASGITransport(app, client=(client, 1))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=inside, base_url="http://127.0.0.1:8787") as one,
    ):
        await one.post("/v1/chat/completions", json={"model": "small", "messages": [{"role": "user", "content": "hi"}]})
        return await one.get(f"/-/status{query}", headers=headers)


async def test_it_says_what_runs_and_with_full_what_went_wrong(tmp_path):
    found = (await asked(tmp_path, {}, query="?full=true")).json()
    assert (found["upstreams"], found["process"]["mode"]) == (["http://127.0.0.1:9/v1"], "on")
    assert (found["data_dir"], found["artifacts"]) == (str(tmp_path), str(tmp_path / "tool-output"))
    assert [found["served"][name] for name in ("requests", "unanswered", "fitted", "cured")] == [1, 1, 0, 0]
    assert [(one["model"], one["status"]) for one in found["problems"]] == [("small", 502)]
    assert "does not answer" in found["health"][0]["words"]
    asked_little = (await asked(tmp_path, {})).json()
    assert [asked_little[name] for name in ("problems", "health")] == [None] * 2


async def test_a_proof_opens_it_where_a_key_is_set_and_a_proof_comes_back(tmp_path):
    key = "operator-key-0123456789"
    assert (await asked(tmp_path, {}, admin_key=key)).status_code == 401
    mine = {NONCE_HEADER: NONCE, PROOF_HEADER: proof_of(TOKEN, "command", 8787, NONCE)}
    answer = await asked(tmp_path, mine, admin_key=key)
    assert answer.status_code == 200
    assert is_proven(TOKEN, "proxy", 8787, NONCE, answer.headers[PROOF_HEADER])


@pytest.mark.parametrize(
    "wrong",
    [
        {NONCE_HEADER: NONCE, PROOF_HEADER: proof_of(TOKEN, "proxy", 8787, NONCE)},
        {NONCE_HEADER: NONCE, PROOF_HEADER: proof_of("another", "command", 8787, NONCE)},
        {NONCE_HEADER: NONCE, PROOF_HEADER: proof_of(TOKEN, "command", 8788, NONCE)},
        {NONCE_HEADER: "other", PROOF_HEADER: proof_of(TOKEN, "command", 8787, NONCE)},
        {PROOF_HEADER: proof_of(TOKEN, "command", 8787, "")},
        {NONCE_HEADER: NONCE, PROOF_HEADER: "ü".encode()},
    ],
)
async def test_a_proof_holds_for_one_token_one_side_one_port_and_one_nonce(tmp_path, wrong):
    for token in (TOKEN, None):
        assert (await asked(tmp_path, wrong, client="192.0.2.1", token=token)).status_code == 403
