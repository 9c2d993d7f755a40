"""Refusals in other languages → the English words that decide what they mean.

Rule: a word becomes the English word of the same class, in its place; nothing else of a text changes. What would be
another reason in English (a rate, a quota, a file) has its words here, too. Chinese is read as it is.
"""

from __future__ import annotations

import re
from typing import Final

_IN_ENGLISH: Final = (
    ("per minute",
     r"分[間间]?あたり|毎分|분당|в минуту|por minuto|pro minute|par minute|al minuto|mỗi phút|per menit"),
    ("per day",
     r"日(?:あたり|间|の)|本日|毎日|하루|일일|в (?:день|сутки)|(?:суточн|дневн|ежедневн)\w*|por d[ií]a|diari[oa]s?"
     r"|pro tag|täglich\w*|tages\w+|par jour|quotidien\w*|journali\w+|mỗi ngày|trong ngày|hàng ngày|per hari|harian"),
    ("per hour", r"时间あたり|시간당|в час|por hora|pro stunde|par heure|mỗi giờ"),
    ("rate limit",
     r"レート(?:制限|リミット)|속도 제한|частот\w* запросов|лимит запросов|l[ií]mite? de (?:tasa|velocidad|frecuencia|"
     r"solicitudes|peticiones|taxa|requisições|débit|fréquence|requêtes)|ratenlimit\w*|ratenbegrenzung|anfragelimit\w*"
     r"|giới hạn (?:tốc độ|tần suất)"),
    ("too many requests",
     r"リクエスト(?:数)?が多すぎ|요청이 너무 많|слишком много запросов|demasiadas (?:solicitudes|peticiones)"
     r"|(?:muit|demasiad)[oa]s (?:solicitações|pedidos|requisições)|zu viele anfragen|trop de requêtes"
     r"|quá nhiều yêu cầu|terlalu banyak permintaan"),
    ("concurrent", r"同时(?:実行|接続|リクエスト)|동시|одновременн\w*|simult[aâá]ne\w+|gleichzeitig\w*|đồng thời"),
    ("api key", r"api ?キー|api ?키|api[- ]ключ\w*|ключ\w* api|cl(?:é|ave)s?(?: de(?: la)?)? api|chave(?: d[ea])? api"
     r"|api-schlüssel|khóa api"),
    ("quota",
     r"クォータ|クレジット|残高|利用枠|할당량|크레딧|잔액|квот\w*|баланс\w*|средств|cuotas?|cotas?|saldo|cr[eé]ditos?"
     r"|crédits?|solde|guthaben|kontingent\w*|hạn mức|hạn ngạch|số dư|kuota|saldo"),
    ("timed out",
     r"タイムアウト|制限时间|(?:処理|実行|応答|待机|待機)时间|시간(?:이| 제한을?)? ?초과|시간 제한|таймаут\w*|врем\w+ "
     r"(?:ожидания|выполнения|ответа)|лимит времени|tiempo(?: de espera| límite)?|tempo(?: limite| de espera)?"
     r"|zeit(?:limit|überschreitung|grenze)\w*|délai\w*|temps|hết thời gian|thời gian chờ|quá thời gian"),
    ("out of memory", r"メモリ|메모리|памят\w+|memoria|memória|speicher\w*|mémoire|bộ nhớ"),
    ("number of messages",
     r"メッセージ(?:の)?(?:数|件数)|메시지 ?(?:수|개수)|(?:количеств|числ)\w* сообщений|n[uú]mero de mensa\w+"
     r"|anzahl der nachrichten|nombre de messages|số lượng tin nhắn"),
    ("number of images",
     r"画像(?:の)?(?:数|枚数)|이미지 ?(?:수|개수)|(?:количеств|числ)\w* изображений|n[uú]mero de im[aá]gen\w*"
     r"|número de imagens|anzahl der bilder|nombre d'images|số lượng hình ảnh"),
    ("image",
     r"画像|이미지|изображени\w*|картин\w*|im[aá]gen(?:es)?|imagens?|imagem|immagin[ei]|bild(?:er|es|s)?|hình ảnh"),
    ("file", r"ファイル|파일|файл\w*|archivos?|arquivos?|ficheiros?|dateie?n?|fichiers?|tệp|tập tin"),
    ("bytes", r"バイト|바이트|байт\w*|octets?|[кмг]б"),
    ("output tokens",
     r"(?:出力|生成|応答)トークン|출력 ?토큰|выходных токенов|tokens? de (?:salida|saída|sortie)|ausgabe-?tokens?"
     r"|jetons de sortie"),
    ("output",
     r"出力|応答|출력|응답|답변|вывод\w*|ответ\w*|salida|respuesta|saída|resposta|ausgabe\w*|antwort\w*|sortie"
     r"|réponse|đầu ra|phản hồi"),
    ("too long",
     r"长(?:すぎ|过ぎ)|너무 ?(?:깁|길|긴)|слишком длинн\w*|demasiad[oa]s? (?:larg[oa]s?|extens[oa]s?)"
     r"|(?:muito|demasiado) (?:long[oa]s?|extens[oa]s?)|zu lang\w*|troppo lung\w+|trop long(?:ue)?s?|quá dài"
     r"|te lang|příliš dlouh\w*|terlalu panjang"),
    ("too large",
     r"大き(?:すぎ|过ぎ)|너무 ?(?:큽|크|큰)|слишком (?:больш|велик)\w*|demasiad[oa]s? grandes?|muito grandes?"
     r"|zu groß\w*|trop (?:grande?|volumineu\w+)s?|quá lớn|terlalu besar"),
    ("too many tokens",
     r"トークン(?:数)?が多すぎ|토큰이 너무 많|слишком много токенов|demasiados tokens|(?:muito|demasiado)s tokens"
     r"|tokens demais|zu viele tokens|trop de (?:jetons|tokens)|quá nhiều token\w*"),
    ("too many",
     r"слишком много|demasiad[oa]s|(?:muit|demasiad)[oa]s|zu viele|trop d(?:e|')|quá nhiều|tropp[ie]"),
    ("not supported",
     r"サポートされて(?:い)?(?:ません|ない)|対応して(?:い)?(?:ません|ない)|지원(?:되|하)지 않|не поддержива\w*"
     r"|no (?:admite|soporta)|não (?:suporta|aceita|é suportad[oa])|unterstützt (?:keine|nicht)|nicht unterstützt"
     r"|(?:ne prend |n'est |ne sont )?pas (?:pris(?:es?)? )?en charge|không hỗ trợ|non supporta(?:to|ti|te)?"),
    ("context",
     r"コンテキスト|コンテクスト|文脈|컨텍스트|콘텍스트|문맥|контекст\w*|contextos?|kontext\w*"
     r"|contextes?|contest[oi]|konteks(?:t[lv]\w+)?|ngữ cảnh"),
    ("prompt", r"プロンプト|프롬프트|промпт\w*|промт\w*|eingabeaufforderung\w*"),
    ("input", r"入力|입력|(?:ввод|вход)\w*|entradas?|eingaben?|entrées?|đầu vào"),
    ("messages",
     r"メッセージ|메시지|сообщени\w*|mensajes?|mensage(?:m|ns)|messagg[io]|nachricht(?:en)?|tin nhắn|thông điệp|pesan"),
    ("conversation",
     r"대화|диалог\w*|разговор\w*|беседы|conversaci[oó]n|conversa(?:ç|c)[aã]o|conversa|unterhaltung|gespräch\w*"
     r"|cuộc trò chuyện|hội thoại"),
    ("request",
     r"リクエスト|요청|запрос\w*|solicitud|petici[oó]n|requisição|solicitação|pedido|richiesta|anfrage|requête"
     r"|yêu cầu"),
    ("text", r"テキスト|텍스트|текст\w*|textos?|textes?|văn bản|nội dung"),
    ("characters", r"文字数?|글자|문자|자(?<=\d자)|символ\w*|знак(?:ов|а)|caracteres|zeichen|caractères|ký tự"),
    ("tokens", r"トークン数?|토큰|токен\w*|jetons?"),
    ("length",
     r"长さ|サイズ|길이|크기|длин[аыуе]\w*|размер\w*|longitud|tamaño|comprimento|tamanho|länge|größe|longueur|taille|lunghezza"
     r"|độ dài|kích thước"),
    ("exceeds",
     r"超え|オーバー|초과|넘었|넘습|넘어|넘는|превы(?:ша|си|ше)\w*|больше|exced\w+|excéd\w+"
     r"|super(?:a|an|ó|ado|ada|ou)|sobrepas\w+|ultrapass\w+|überschr\w+|übersteig\w*|dépass\w*|excèd\w*|vượt(?: quá)?"
     r"|overschr\w+|overskr\w+|överskr\w+|překroč\w+|melebihi"),
    ("is full", r"満杯|いっぱい|가득|переполнен\w*|llen[oa]s?|chei[oa]s?|(?:ist )?voll|pleine?|đã đầy"),
    ("maximum", r"최대|максимал\w*|максимум\w*|máxim[oa]s?|massim[oaie]|maximal\w*|höchst\w*|tối đa"),
    ("limit",
     r"制限|한도|제한|한계|лимит\w*|предел\w*|ограничени\w*|límites?|limites?|grenze\w*|begrenzung|giới hạn"
     r"|batas(?:an)?"),
    ("reduce",
     r"短く|短縮|短缩|減ら|削減|줄여|줄이|줄일|сократ\w*|уменьш\w*|reduz\w+|reduc[ai]\w*|acort\w+|encurt\w+|riduc\w+|ridurre|accorci\w+|kürz\w+"
     r"|verkürz\w+|rédui\w+|raccourci\w+|rút ngắn|giảm"),
)  # fmt: skip
"""Each row: the English words, and what they replace; the first that matches at a place. Japanese is written as the
normal form has it, with the simplified characters of its vocabulary (长, 时)."""
_SPACES: Final = re.compile(r" {2,}")
_BY_SIGNS: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")


def _bounded(words: str) -> str:
    """Whole words, except in Japanese and Korean, where nothing separates them."""
    return words if _BY_SIGNS.match(words) else rf"\b(?:{words})\b"


def _alternation(words: str) -> str:
    """The words of a row: alternatives at the outermost level, of which each has its own bounds."""
    return "|".join(_bounded(one) for one in re.split(r"\|(?![^(]*\))", words))


_FOREIGN: Final = re.compile(
    "|".join(f"(?P<_{row}>{_alternation(words)})" for row, (_, words) in enumerate(_IN_ENGLISH))
)


def in_english(text: str) -> str:
    """The text, in lower case, with the words that decide its meaning in English.

    >>> in_english("la entrada es demasiado larga"), in_english("토큰 한도를 초과했습니다")
    ('la input es too long', 'tokens limit 를 exceeds 했습니다')
    """
    return _SPACES.sub(" ", _FOREIGN.sub(_english, text)).strip()


def _english(found: re.Match[str]) -> str:
    return f" {_IN_ENGLISH[int((found.lastgroup or '')[1:])][0]} "
