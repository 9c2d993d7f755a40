import pytest

from proxy import errors
from proxy.errors import ProxyError


def below(kind):
    return [kind, *(one for child in kind.__subclasses__() for one in below(child))]


KINDS = [kind for kind in below(ProxyError) if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_has_a_status_that_says_whose_fault_it_is_and_a_code_in_one_word(kind):
    error = kind("said", param="member")
    assert (error.message, str(error), error.param) == ("said", "said", "member")
    assert 400 <= kind.status <= 599
    assert kind.code.isidentifier()
    assert (kind.type == "invalid_request_error") <= (kind.status < 500 or kind.status == 501)


def test_the_picture_of_the_tree_names_every_error_with_its_status():
    picture = errors.__doc__.partition("Raised by meaning")[0]
    grouped = {"ProxyError", "ClientError", "UpstreamError", "ArtifactError"}
    missing = [
        kind.__name__
        for kind in KINDS
        if kind.__name__ not in grouped and f"{kind.__name__} {kind.status}" not in picture
    ]
    assert missing == []


def test_a_second_refusal_may_carry_the_words_of_the_upstream():
    assert errors.ContextOverflow("too long", upstream_message="no").upstream_message == "no"
    assert errors.ContextOverflow("too long").upstream_message is None
