"""Refusals in the languages that gateways speak, without a number, and what looks like them."""

from __future__ import annotations

import json

import pytest

from proxy.core.overflow import Sent, Verdict
from proxy.core.overflow.languages import in_english
from proxy.wire import judge_answer

TOO_LONG = [
    *("コンテキストウィンドウが満杯です", "メッセージが長すぎます。"),
    *("リクエストのトークン数がモデルの上限を超過しました", "会話が長すぎます。新しい会話を始めてください。"),
    "入力トークン数が多すぎます",
    *("요청이 너무 깁니다. 대화를 줄여 주세요.", "프롬프트가 모델의 최대 길이를 초과했습니다"),
    *("입력 토큰이 너무 많습니다", "메시지가 최대 컨텍스트 길이를 넘었습니다"),
    *("Слишком длинный запрос", "Длина запроса превышает максимально допустимую", "Размер контекста превышен"),
    *("Превышено максимальное количество токенов", "Сообщение слишком длинное"),
    *("La conversación es demasiado larga.", "Se superó el límite de contexto", "Demasiados tokens en la solicitud"),
    *("El texto supera la longitud máxima permitida", "O prompt ultrapassa o limite do modelo"),
    *("Mensagem muito longa", "O limite de contexto foi excedido", "Tokens demais na requisição"),
    *("Il prompt supera la lunghezza massima del contesto.", "La richiesta è troppo lunga"),
    *("Ihre Anfrage ist zu lang", "Der Prompt überschreitet das Token-Limit des Modells"),
    *("Die Anzahl der Tokens übersteigt das Maximum", "Kontextlimit überschritten", "Eingabe zu lang"),
    *("Votre requête est trop longue", "Le contexte dépasse la limite", "Trop de jetons dans le prompt"),
    *("Le message dépasse la longueur maximale autorisée", "Đầu vào quá dài", "Số lượng token vượt quá giới hạn"),
    *("Ngữ cảnh vượt quá giới hạn cho phép", "Yêu cầu quá dài"),
    *("コンテキスト長の上限を超えました。入力を短くしてください。", "入力が長すぎます。"),
    *("トークン数が上限を超えています", "プロンプトがモデルの最大コンテキスト長を超過しました。"),
    *("컨텍스트 길이를 초과했습니다. 메시지를 줄여 주세요.", "입력이 너무 깁니다.", "토큰 한도를 초과했습니다"),
    *("Превышена максимальная длина контекста. Сократите сообщения.", "Запрос слишком длинный."),
    "Превышен лимит токенов",
    "Se ha superado la longitud máxima del contexto. Reduzca los mensajes.",
    "El prompt excede el límite de tokens del modelo",
    *("O comprimento máximo do contexto foi excedido. Reduza as mensagens.", "A entrada é muito longa."),
    *("Die maximale Kontextlänge wurde überschritten. Bitte kürzen Sie die Nachrichten.", "Die Eingabe ist zu lang."),
    *("La longueur maximale du contexte a été dépassée. Veuillez réduire les messages.", "L'entrée est trop longue."),
    "La requête dépasse la limite de jetons du modèle",
    *("Đã vượt quá độ dài ngữ cảnh tối đa. Vui lòng rút ngắn tin nhắn.", "Nội dung quá dài"),
    *("超出上下文长度限制", "超出上下文長度上限，請縮短訊息。"),
    "Das Kontextfenster ist voll",
    *("Panjang konteks melebihi batas model. Harap persingkat pesan.", "Pesan terlalu panjang"),
]
ANOTHER_REASON = [
    *("レート制限を超えました。しばらくしてから再試行してください。", "1分あたりのトークン数の上限を超えました"),
    *("1日のトークン上限に達しました。", "残高が不足しています", "画像サイズが大きすぎます"),
    *("ファイルサイズが上限を超えています", "応答がタイムアウトしました。処理時間の上限を超えました。"),
    *("出力トークン数が上限を超えています", "リクエスト数の上限を超えました"),
    *("분당 토큰 한도를 초과했습니다", "요청 한도를 초과했습니다. 잠시 후 다시 시도하세요.", "할당량을 초과했습니다"),
    *("이미지 크기가 너무 큽니다", "시간 초과", "파일이 너무 큽니다", "하루 요청 한도를 초과했습니다"),
    *("Превышен лимит запросов", "Слишком много запросов", "Превышен лимит токенов в минуту", "Превышена квота"),
    *("Размер файла превышает допустимый", "Превышено время ожидания ответа", "Изображение слишком большое"),
    "Суточный лимит токенов превышен",
    *("Terlalu banyak permintaan, batas per menit terlampaui", "Kuota melebihi batas"),
    *("Se superó el límite de solicitudes", "Demasiadas solicitudes", "Ha superado su cuota"),
    *("La imagen es demasiado grande", "El archivo supera el tamaño máximo", "Tiempo de espera superado"),
    *("Límite de tokens por minuto superado", "El nombre de la herramienta es demasiado largo"),
    *("Limite de requisições excedido", "Cota excedida", "A imagem é muito grande", "Tempo limite excedido"),
    *("Limite de tokens por minuto excedido", "Superato il limite di richieste al minuto"),
    *("L'immagine supera la dimensione massima", "Anfragelimit überschritten", "Zu viele Anfragen"),
    *("Kontingent überschritten", "Das Bild ist zu groß", "Die Datei überschreitet die maximale Größe"),
    *("Zeitüberschreitung der Anfrage", "Token-Limit pro Minute überschritten", "Der Name ist zu lang"),
    *("max_tokens überschreitet das Maximum", "Trop de requêtes", "Quota dépassé", "L'image est trop grande"),
    *("Délai d'attente dépassé", "Limite de jetons par minute dépassée", "Le fichier dépasse la taille maximale"),
    *("Le nom de l'outil est trop long", "Quá nhiều yêu cầu", "Vượt quá hạn mức", "Hình ảnh quá lớn"),
    *("Vượt quá giới hạn token mỗi phút", "Tệp quá lớn"),
    "Недостаточно средств",
    "モデルが見つかりません",
    "잘못된 요청입니다",
    *("El modelo no existe", "Clé API invalide", "Ungültiger API-Schlüssel"),
]
UNREAD = [
    "ความยาวเกินขีดจำกัด",
    "تم تجاوز الحد الأقصى لطول السياق",
    "संदर्भ की लंबाई सीमा से अधिक है",
    "Przekroczono maksymalną długość kontekstu.",
    "Bağlam uzunluğu sınırı aşıldı",
]
READ = ["参数 role 非法", "不支持的角色", "画像を処理できません", "The café's role is unknown", "Bad role"]
LONG = Sent(12_000, 48_000, window_is_certain=False)


def refused(text: str, status: int = 400) -> Verdict:
    return judge_answer(status, [], json.dumps({"error": {"message": text}}).encode(), sent=LONG)


@pytest.mark.parametrize("text", TOO_LONG)
def test_a_prompt_is_too_long_in_any_language_that_gateways_speak(text: str):
    verdict = refused(text)
    assert (verdict.is_overflow, verdict.limit) == (True, None)


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("text", ANOTHER_REASON)
def test_a_rate_a_quota_a_file_or_a_time_that_is_exceeded_is_no_prompt_that_is_too_long(text: str, status: int):
    verdict = refused(text, status)
    assert not verdict.is_overflow
    assert not verdict.is_suspect


@pytest.mark.parametrize("text", UNREAD)
def test_words_of_any_other_language_say_as_little_as_none(text: str):
    assert refused(text).is_suspect
    assert not refused(text, 422).is_suspect


@pytest.mark.parametrize("text", READ)
def test_a_language_that_is_read_says_something_even_if_it_is_not_understood(text: str):
    assert not refused(text).is_suspect


def test_english_and_chinese_stay_as_they_are():
    for text in ("too many input tokens per minute", "输入过长，超过上下文长度上限", "the file name of the image"):
        assert in_english(text) == text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "folder_id=b1g: text length is 45011, which is outside the range (0, 27000]"),
        (400, "Text length 45011 is out of range [1, 27000]"),
        (400, "the length of the text, 45011, must be in the range 1 to 27000"),
    ],
)
def test_a_limit_in_characters_is_the_end_of_a_range(status: int, text: str):
    verdict = refused(text, status)
    assert (verdict.is_overflow, verdict.limit, verdict.unit, verdict.limit_is_learnable) == (
        True,
        27_000,
        "chars",
        True,
    )


@pytest.mark.parametrize(
    "text",
    [
        "Request too large for model `m` in organization `o`: Limit 9000, Requested 12345, please reduce your message",
        "Too large: limit: 9,000, requested: 12,345",
    ],
)
def test_numbers_of_a_413_without_a_unit_are_tokens(text: str):
    verdict = refused(text, 413)
    assert (verdict.is_overflow, verdict.limit, verdict.requested, verdict.unit) == (True, 9_000, 12_345, "tokens")
    assert not refused("Request too large: limit 9000 bytes, requested 12345 bytes", 413).is_overflow
    assert not refused("Request too large: Limit 12345, Requested 9000", 413).is_overflow
