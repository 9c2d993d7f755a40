from proxy.core.overflow.numbers import skeleton
from proxy.core.overflow.patterns import AFTER, EQUATIONS, EXCESS, HEADS, NOUNS
from proxy.core.overflow.sentences import normalised


def test_every_anchor_reads_the_message_it_was_made_for():
    for equation in EQUATIONS:
        assert equation.pattern.search(skeleton(normalised(equation.message))[0]), equation.message
    for cue in (*HEADS, *NOUNS, *AFTER, EXCESS):
        assert cue.message
        assert cue.source
