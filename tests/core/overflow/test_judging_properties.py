"""What must hold for any numbers and any wording of the grammar."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.overflow import ErrorReport, ErrorText, Verdict, VerdictKind, judge

ENGLISH = (
    "The {subject} has {asked} tokens, but the {bound} is {limit} tokens.",
    "{subject} of {asked} tokens exceeds the {bound} of {limit} tokens",
    "{subject} ({asked} tokens) is longer than the {bound} ({limit})",
    "{subject} too long: {asked} tokens, {bound}: {limit}",
    "The {bound} is {limit} tokens, however your {subject} resulted in {asked} tokens",
    "{bound} {limit} exceeded: {subject} contains {asked} tokens",
    "{subject} must have fewer than {limit} tokens. Given: {asked}.",
    "Your {subject} is {asked} tokens long which does not fit within the {bound} of {limit} tokens.",
    "The number of tokens in the {subject} ({asked}) cannot exceed {limit}",
    "Expected a {subject} of up to {limit} tokens but received {asked} tokens",
    "{subject} over the {bound}: limit={limit}, actual={asked} tokens",
    "{subject} overflow: {asked}/{limit} tokens",
)
CHINESE = (
    "{subject}长度 {asked} 超过{bound} {limit}",
    "{subject}共 {asked} 个token，超出{bound}（{limit}）",
    "{subject}过长：当前 {asked} tokens，{bound}为 {limit} tokens",
    "{bound}为{limit}，当前{subject}token数为{asked}",
    "{subject}不能超过{limit}个token，实际为{asked}",
    "您的{subject}包含{asked}个tokens，{bound}仅为{limit}个tokens",
)
JOINT = (
    "This model's maximum context length is {limit} tokens. However, you requested {total} tokens "
    "({prompt} in the messages, {reply} in the completion).",
    "prompt ({prompt} tokens) + max_tokens ({reply}) exceeds context window ({limit})",
    "{prompt} prompt tokens + {reply} completion tokens = {total} > {limit}",
    "Input tokens ({prompt}) + max_new_tokens ({reply}) must be <= {limit}",
    "最大上下文长度为 {limit}，您请求了 {total} 个token（输入 {prompt}，输出 {reply}）",
)
RATES = (
    "Rate limit reached: {limit} tokens per minute, requested {asked}.",
    "Request too large on tokens per day (TPD): Limit {limit}, Requested {asked}, please reduce your message size.",
    "Limit {limit}, Used {asked}, Requested {asked}.",
    "每分钟token数超过限制：{limit}，当前{asked}。",
    "Too many tokens, please wait before trying again.",
)
LIMITS = st.integers(min_value=1_000, max_value=2_000_000)
GROUPINGS = st.sampled_from([str, lambda n: f"{n:,}", lambda n: f"{n:_}", lambda n: f"{n:,}".replace(",", "\u202f")])


def judged(message: str, status: int = 400) -> Verdict:
    return judge(ErrorReport(status, texts=(ErrorText("error.message", message),)))


@st.composite
def sizes(draw) -> tuple[int, int]:
    """A limit and a size that breaks it."""
    limit = draw(LIMITS)
    return limit, limit + draw(st.integers(min_value=1, max_value=limit))


@given(
    st.sampled_from(ENGLISH),
    st.sampled_from(["prompt", "input", "Input", "conversation", "request", "messages"]),
    st.sampled_from(
        ["maximum context length", "context window", "context limit", "maximum input length", "token limit"]
    ),
    sizes(),
    GROUPINGS,
)
def test_a_pair_keeps_its_roles_in_english(template, subject, bound, pair, grouped):
    limit, asked = pair
    verdict = judged(template.format(subject=subject, bound=bound, limit=grouped(limit), asked=grouped(asked)))
    assert (verdict.is_overflow, verdict.limit, verdict.prompt or verdict.requested) == (True, limit, asked)


@given(
    st.sampled_from(CHINESE),
    st.sampled_from(["输入", "上下文", "提示词", "消息", "对话", "请求"]),
    st.sampled_from(["最大上下文长度", "模型上限", "模型支持的最大长度", "上下文窗口", "最大限制", "token上限"]),
    sizes(),
)
def test_a_pair_keeps_its_roles_in_chinese(template, subject, bound, pair):
    limit, asked = pair
    verdict = judged(template.format(subject=subject, bound=bound, limit=limit, asked=asked))
    assert (verdict.is_overflow, verdict.limit, verdict.prompt or verdict.requested) == (True, limit, asked)


@given(st.sampled_from(JOINT), LIMITS, st.data())
def test_a_prompt_that_fits_without_its_reply_is_told_from_one_that_does_not(template, limit, data):
    prompt = data.draw(st.integers(min_value=limit // 2 + 1, max_value=limit - 1))
    reply = data.draw(st.integers(min_value=limit - prompt + 1, max_value=limit - 1))
    verdict = judged(template.format(limit=limit, prompt=prompt, reply=reply, total=prompt + reply))
    assert verdict.kind is VerdictKind.PROMPT_PLUS_REPLY
    assert (verdict.limit, verdict.prompt, verdict.reply, verdict.requested) == (limit, prompt, reply, prompt + reply)


@given(st.sampled_from(RATES), sizes(), st.sampled_from([400, 413, 422, 429, 500, 503]))
def test_a_rate_limit_is_no_overflow_and_never_teaches(template, pair, status):
    verdict = judged(template.format(limit=pair[0], asked=pair[1]), status)
    assert not verdict.is_overflow
    assert not verdict.limit_is_learnable
    assert (verdict.limit is None) != verdict.is_over_rate


@given(st.sampled_from(RATES), sizes(), sizes(), st.booleans())
def test_a_rate_limit_beside_an_overflow_lends_it_no_number(template, rate, pair, rate_first):
    limit, asked = pair
    overflow = f"The prompt of {asked} tokens exceeds the context window of {limit} tokens."
    sentences = [template.format(limit=rate[0], asked=rate[1]), overflow]
    verdict = judged(" ".join(sentences if rate_first else reversed(sentences)))
    assert (verdict.is_overflow, verdict.limit, verdict.prompt) == (True, limit, asked)
