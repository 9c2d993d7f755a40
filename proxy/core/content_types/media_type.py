"""The type of a content: by its bytes, then by its declared type, then by its name, otherwise `other`.

Rule: a claim (a declared type, or a file extension) can only refine the finding: which text, which archive. It never
turns a text into an image; and nothing here raises, whatever the bytes.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from proxy.core.content_types.signatures import KEPT_IN_OLE, OLE_STORAGE, mime_behind_junk, mime_by_signature
from proxy.core.content_types.texts import is_text, may_be_text, mime_of_text
from proxy.core.models import Modality

BINARY: Final = "application/octet-stream"
PLAIN: Final = "text/plain"
_VAGUE: Final = frozenset({"", BINARY, PLAIN})
"""Claims that say nothing useful when there is another claim."""


class ContentKind(StrEnum):
    """The kind of a content from a model's point of view."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    DOCUMENT = "document"
    TEXT = "text"
    OTHER = "other"


class MediaType(Struct, frozen=True):
    """The type of one content."""

    mime: str
    kind: ContentKind
    suffix: str
    """The extension of a file of this type, without the dot."""


_MODALITIES: Final = {
    ContentKind.IMAGE: Modality.VISION,
    ContentKind.AUDIO: Modality.AUDIO,
    ContentKind.VIDEO: Modality.VIDEO,
    ContentKind.DOCUMENT: Modality.FILE,
    ContentKind.TEXT: Modality.TEXT,
}
_KINDS: Final = {modality: kind for kind, modality in _MODALITIES.items()}

_OOXML: Final = "application/vnd.openxmlformats-officedocument."
_MACROS: Final = "application/vnd.ms-"
_ENABLED: Final = ".macroenabled.12"
_ODF: Final = "application/vnd.oasis.opendocument."

# MIME type · extension, and other extensions of the same type · other names of the same type
_LINES: Final[Mapping[ContentKind, str]] = {
    ContentKind.IMAGE: """
        image/png            png,apng           image/x-png image/apng
        image/jpeg           jpg,jpeg,jpe,jfif  image/jpg image/pjpeg
        image/gif            gif
        image/webp           webp
        image/bmp            bmp,dib            image/x-bmp image/x-ms-bmp
        image/svg+xml        svg                image/svg
        image/avif           avif,avifs         image/avif-sequence
        image/heic           heic,heif,hif      image/heif image/heic-sequence image/heif-sequence
        image/tiff           tiff,tif           image/tif image/x-tiff
        image/x-icon         ico,cur            image/vnd.microsoft.icon image/ico
        image/jxl            jxl
        image/jp2            jp2,j2k,jpx        image/jpx image/jpeg2000
        image/vnd.adobe.photoshop psd           image/x-photoshop application/x-photoshop
    """,
    ContentKind.AUDIO: """
        audio/mpeg           mp3,mpga,mp2       audio/mp3 audio/x-mp3 audio/x-mpeg audio/mpg
        audio/wav            wav,wave           audio/x-wav audio/wave audio/vnd.wave audio/x-pn-wav
        audio/ogg            ogg,oga,opus,spx   audio/opus audio/vorbis audio/x-vorbis audio/x-ogg
        audio/flac           flac               audio/x-flac
        audio/mp4            m4a,m4b,m4r        audio/m4a audio/x-m4a audio/mp4a-latm audio/x-m4b
        audio/aac            aac,adts           audio/x-aac audio/aacp audio/x-hx-aac-adts
        audio/aiff           aiff,aif,aifc      audio/x-aiff
        audio/amr            amr                audio/amr-wb
        audio/midi           mid,midi           audio/x-midi
        audio/basic          au,snd
        audio/x-ms-wma       wma
        audio/webm           weba
        audio/x-matroska     mka
    """,
    ContentKind.VIDEO: """
        video/mp4            mp4,m4v            video/x-m4v application/mp4
        video/webm           webm
        video/quicktime      mov,qt
        video/x-matroska     mkv                video/matroska
        video/x-msvideo      avi                video/avi video/msvideo video/vnd.avi
        video/ogg            ogv                application/ogg
        video/mpeg           mpg,mpeg,mpe,vob   video/x-mpeg video/mp2p
        video/mp2t           mts,m2ts
        video/3gpp           3gp,3g2            video/3gpp2 audio/3gpp
        video/x-flv          flv
        video/x-ms-wmv       wmv,asf            video/x-ms-asf application/vnd.ms-asf
    """,
    ContentKind.DOCUMENT: f"""
        application/pdf                  pdf    application/x-pdf
        application/msword               doc,dot application/x-msword application/doc
        application/vnd.ms-excel         xls,xlt application/x-excel application/excel application/x-msexcel
        application/vnd.ms-powerpoint    ppt,pps,pot application/x-mspowerpoint application/powerpoint
        application/vnd.ms-outlook       msg
        {_OOXML}wordprocessingml.document      docx,docm,dotx,dotm {_MACROS}word.document{_ENABLED}
        {_OOXML}spreadsheetml.sheet            xlsx,xlsm,xltx,xltm,xlsb {_MACROS}excel.sheet{_ENABLED}
        {_OOXML}presentationml.presentation  pptx,pptm,ppsx,ppsm,potx {_MACROS}powerpoint.presentation{_ENABLED}
        {_ODF}text           odt,ott            {_ODF}text-template
        {_ODF}spreadsheet    ods,ots            {_ODF}spreadsheet-template
        {_ODF}presentation   odp,otp            {_ODF}presentation-template
        {_ODF}graphics       odg,otg            {_ODF}graphics-template
        application/epub+zip epub
        application/rtf      rtf                text/rtf application/x-rtf
        application/postscript ps,eps,ai        application/eps application/x-eps image/x-eps
    """,
    ContentKind.TEXT: """
        text/plain           txt,text,log
        text/csv             csv                application/csv text/x-csv
        text/markdown        md,markdown        text/x-markdown
        text/html            html,htm           application/xhtml+xml
        text/calendar        ics
        text/vcard           vcf                text/x-vcard
        application/json     json,geojson,ipynb text/json application/x-json
        application/x-ndjson ndjson,jsonl       application/jsonl application/x-jsonlines
        application/xml      xml,xsd,xsl,rss    text/xml
        application/yaml     yaml,yml           text/yaml text/x-yaml application/x-yaml
        application/toml     toml
        application/sql      sql                text/x-sql
        text/javascript      js,mjs,cjs         application/javascript application/x-javascript
        text/x-python        py,pyi             application/x-python text/x-script.python
        application/x-sh     sh,bash,zsh        text/x-sh text/x-shellscript application/x-shellscript
        text/x-diff          diff,patch         text/x-patch
        text/x-c             c,h                text/x-csrc text/x-chdr
        message/rfc822       eml
        application/x-tex    tex                text/x-tex application/x-latex
    """,
    ContentKind.OTHER: """
        application/octet-stream bin            binary/octet-stream application/unknown application/x-binary
        application/zip      zip,jar,whl,apk    application/x-zip-compressed application/x-zip multipart/x-zip
        application/vnd.rar  rar                application/x-rar-compressed application/x-rar application/rar
        application/x-7z-compressed 7z
        application/gzip     gz,tgz             application/x-gzip application/gzip-compressed application/x-tgz
        application/x-xz     xz,txz
        application/x-bzip2  bz2,tbz2           application/bzip2 application/x-bzip
        application/zstd     zst                application/x-zstd
        application/x-tar    tar
        application/x-ole-storage ole           application/x-cfb
        application/x-executable elf,so,o       application/x-elf application/x-sharedlib
        application/vnd.microsoft.portable-executable exe,dll application/x-msdownload application/x-dosexec
        application/vnd.sqlite3 sqlite,sqlite3,db application/x-sqlite3
        application/wasm     wasm
        font/ttf             ttf                font/sfnt application/x-font-ttf
        font/otf             otf                application/x-font-otf
        font/woff            woff               application/font-woff
        font/woff2           woff2
    """,
}

_TYPES: Final[dict[str, MediaType]] = {}
_ALIASES: Final[dict[str, str]] = {}
_ENDINGS: Final[dict[str, str]] = {}
for _kind, _lines in _LINES.items():
    for _line in _lines.strip().splitlines():
        _mime, _endings, *_aliases = _line.split()
        _TYPES[_mime] = MediaType(_mime, _kind, _endings.split(",")[0])
        _ALIASES.update(dict.fromkeys(_aliases, _mime))
        _ENDINGS.update(dict.fromkeys(_endings.split(","), _mime))
_OTHERS: Final = mimetypes.MimeTypes()
"""The standard library's own table names all other types: an instance reads no files of the machine."""

_MIME: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
"""RFC 6838, section 4.2, in lower case."""
_MAX_DECLARED_CHARACTERS: Final = 512
"""Limit of a declared type including its parameters."""
_BINARY_KINDS: Final = ("image/", "audio/", "video/", "font/")


def media_type(content: bytes, declared: str = "", name: str = "") -> MediaType:
    """The type of a content, which may be declared and may have a file name; both may be wrong.

    >>> media_type(b"%PDF-1.7 ...", declared="image/png").mime, media_type(b"a,b", name="x.csv").mime
    ('application/pdf', 'text/csv')
    >>> media_type(b"hello", declared="image/png").mime, media_type(b"\\x00\\x01\\x02", "image/png").kind.value
    ('text/plain', 'other')
    """
    claims = [plain_mime(declared), mime_by_name(name)]
    textual = [claim for claim in claims if _is_textual(claim)]
    if found := mime_by_signature(content):
        finer = (claim for claim in claims if found == OLE_STORAGE and claim in KEPT_IN_OLE)
        return _typed(next(finer, found))
    if is_text(content):
        stated, claim = mime_of_text(content), _best(textual)
        if stated == "image/svg+xml":
            return _typed(stated)
        return _typed(claim if claim not in _VAGUE else stated or PLAIN, ContentKind.TEXT)
    if found := mime_behind_junk(content, is_mp3="audio/mpeg" in claims):
        return _typed(found)
    if textual and may_be_text(content):
        return _typed(_best(textual), ContentKind.TEXT)
    return _typed(_best([claim for claim in claims if claim not in textual and known(claim) is None]))


def _best(claims: list[str]) -> str:
    """The first claim that is specific; otherwise the first vague one."""
    return next((claim for claim in claims if claim not in _VAGUE), next(iter(claims), ""))


def _is_textual(mime: str) -> bool:
    if line := known(mime):
        return line.kind is ContentKind.TEXT
    return mime.startswith("text/") or mime.endswith(("+json", "+xml", "+yaml"))


def _typed(mime: str, kind: ContentKind = ContentKind.OTHER) -> MediaType:
    """A type by its line in the table; for a type without one, by its kind."""
    if line := known(mime or BINARY):
        return line
    suffix = (_OTHERS.guess_extension(mime) or "")[1:]
    return MediaType(mime, kind, suffix or ("txt" if kind is ContentKind.TEXT else "bin"))


def known(mime: str) -> MediaType | None:
    """The line of a type."""
    return _TYPES.get(mime)


def plain_mime(declared: str) -> str:
    """A declared type without parameters, by its name in the table; empty if it is not a type.

    >>> plain_mime("Image/JPG; q=1"), plain_mime("image/x-foo"), plain_mime("png"), plain_mime("../etc")
    ('image/jpeg', 'image/x-foo', 'image/png', '')
    """
    mime = declared[:_MAX_DECLARED_CHARACTERS].partition(";")[0].strip().lower()
    if "/" not in mime:  # some clients write the extension, others only the kind
        return _ENDINGS.get(mime.removeprefix("."), "")
    return _ALIASES.get(mime, mime) if _MIME.fullmatch(mime) else ""


def is_binary(declared: str) -> bool:
    """Whether a declared type is known to be other than text.

    >>> is_binary("image/x-rare"), is_binary("Application/PDF"), is_binary("application/json"), is_binary("x/y")
    (True, True, False, False)
    """
    mime = plain_mime(declared)
    line = known(mime)
    return line.kind is not ContentKind.TEXT if line is not None else mime.startswith(_BINARY_KINDS)


def mime_by_name(name: str) -> str:
    """The type that a file extension states, or an empty text.

    >>> mime_by_name("a/b.tar.GZ"), mime_by_name("README"), mime_by_name("https://h/x.png?size=2")
    ('application/gzip', '', 'image/png')
    """
    ending = re.split(r"[?#]", name[-1_000:])[0].rpartition(".")[2].strip().lower()
    return _ENDINGS.get(ending) or plain_mime(_OTHERS.types_map[True].get(f".{ending}", ""))


def modality_of(kind: ContentKind) -> Modality:
    """The modality that a model needs for this kind."""
    return _MODALITIES.get(kind, Modality.FILE)


def kind_claimed(modality: Modality) -> ContentKind:
    """The kind that a claimed modality implies; a file is a document until it is opened."""
    return _KINDS[modality]
