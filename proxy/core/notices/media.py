"""What people call a type, a kind and a size of media, in English and Chinese.

Rule: as in `notices.py`; a type is called what people call it, and a type that has no name here is a binary file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.content_types import ContentKind, MediaType
from proxy.core.notices.catalogue import Language

_OOXML: Final = "application/vnd.openxmlformats-officedocument."
_ODF: Final = "application/vnd.oasis.opendocument."

_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "image/png": ("PNG image", "PNG 图片"),
    "image/jpeg": ("JPEG image", "JPEG 图片"),
    "image/gif": ("GIF image", "GIF 图片"),
    "image/webp": ("WebP image", "WebP 图片"),
    "image/bmp": ("BMP image", "BMP 图片"),
    "image/svg+xml": ("SVG image", "SVG 图片"),
    "image/avif": ("AVIF image", "AVIF 图片"),
    "image/heic": ("HEIC image", "HEIC 图片"),
    "image/tiff": ("TIFF image", "TIFF 图片"),
    "image/x-icon": ("icon", "图标"),
    "image/jxl": ("JPEG XL image", "JPEG XL 图片"),
    "image/jp2": ("JPEG 2000 image", "JPEG 2000 图片"),
    "image/vnd.adobe.photoshop": ("Photoshop image", "Photoshop 图片"),
    "audio/mpeg": ("MP3 audio", "MP3 音频"),
    "audio/wav": ("WAV audio", "WAV 音频"),
    "audio/ogg": ("Ogg audio", "Ogg 音频"),
    "audio/flac": ("FLAC audio", "FLAC 音频"),
    "audio/mp4": ("M4A audio", "M4A 音频"),
    "audio/aac": ("AAC audio", "AAC 音频"),
    "audio/aiff": ("AIFF audio", "AIFF 音频"),
    "audio/amr": ("AMR audio", "AMR 音频"),
    "audio/midi": ("MIDI music", "MIDI 音乐"),
    "audio/x-ms-wma": ("WMA audio", "WMA 音频"),
    "audio/webm": ("WebM audio", "WebM 音频"),
    "audio/x-matroska": ("Matroska audio", "Matroska 音频"),
    "video/mp4": ("MP4 video", "MP4 视频"),
    "video/webm": ("WebM video", "WebM 视频"),
    "video/quicktime": ("QuickTime video", "QuickTime 视频"),
    "video/x-matroska": ("Matroska video", "Matroska 视频"),
    "video/x-msvideo": ("AVI video", "AVI 视频"),
    "video/ogg": ("Ogg video", "Ogg 视频"),
    "video/mpeg": ("MPEG video", "MPEG 视频"),
    "video/mp2t": ("MPEG transport stream", "MPEG 传输流"),
    "video/3gpp": ("3GP video", "3GP 视频"),
    "video/x-flv": ("Flash video", "Flash 视频"),
    "video/x-ms-wmv": ("Windows Media video", "Windows Media 视频"),
    "application/pdf": ("PDF document", "PDF 文档"),
    "application/msword": ("Word document (97-2003)", "Word 文档（97-2003）"),
    "application/vnd.ms-excel": ("Excel spreadsheet (97-2003)", "Excel 表格（97-2003）"),
    "application/vnd.ms-powerpoint": ("PowerPoint presentation (97-2003)", "PowerPoint 演示（97-2003）"),
    "application/vnd.ms-outlook": ("Outlook message", "Outlook 邮件"),
    f"{_OOXML}wordprocessingml.document": ("Word document", "Word 文档"),
    f"{_OOXML}spreadsheetml.sheet": ("Excel spreadsheet", "Excel 表格"),
    f"{_OOXML}presentationml.presentation": ("PowerPoint presentation", "PowerPoint 演示"),
    f"{_ODF}text": ("OpenDocument text", "OpenDocument 文本文档"),
    f"{_ODF}spreadsheet": ("OpenDocument spreadsheet", "OpenDocument 电子表格"),
    f"{_ODF}presentation": ("OpenDocument presentation", "OpenDocument 演示文稿"),
    f"{_ODF}graphics": ("OpenDocument drawing", "OpenDocument 绘图"),
    "application/epub+zip": ("EPUB book", "EPUB 电子书"),
    "application/rtf": ("RTF document", "RTF 文档"),
    "application/postscript": ("PostScript document", "PostScript 文档"),
    "text/plain": ("plain text", "纯文本"),
    "text/csv": ("CSV table", "CSV 表格"),
    "text/markdown": ("Markdown text", "Markdown 文本"),
    "text/html": ("HTML page", "HTML 网页"),
    "application/json": ("JSON data", "JSON 数据"),
    "application/xml": ("XML data", "XML 数据"),
    "application/yaml": ("YAML data", "YAML 数据"),
    "message/rfc822": ("e-mail message", "电子邮件"),
    "application/zip": ("ZIP archive", "ZIP 压缩包"),
    "application/vnd.rar": ("RAR archive", "RAR 压缩包"),
    "application/x-7z-compressed": ("7-Zip archive", "7-Zip 压缩包"),
    "application/gzip": ("gzip archive", "gzip 压缩文件"),
    "application/x-xz": ("xz archive", "xz 压缩文件"),
    "application/x-bzip2": ("bzip2 archive", "bzip2 压缩文件"),
    "application/zstd": ("Zstandard archive", "Zstandard 压缩文件"),
    "application/x-tar": ("tar archive", "tar 归档"),
    "application/x-executable": ("executable program", "可执行程序"),
    "application/vnd.microsoft.portable-executable": ("Windows program", "Windows 程序"),
    "application/vnd.sqlite3": ("SQLite database", "SQLite 数据库"),
}
_BY_KIND: Final[Mapping[ContentKind, tuple[str, str]]] = {
    ContentKind.IMAGE: ("image", "图片"),
    ContentKind.AUDIO: ("audio", "音频"),
    ContentKind.VIDEO: ("video", "视频"),
    ContentKind.DOCUMENT: ("document", "文档"),
    ContentKind.TEXT: ("text", "文本"),
    ContentKind.OTHER: ("binary file", "二进制文件"),
}
_UNITS: Final = ("KB", "MB", "GB")


def friendly_type(media_type: MediaType, language: Language) -> str:
    """What people call a type.

    >>> from proxy.core.content_types import media_type
    >>> friendly_type(media_type(b"%PDF-1.7"), "en"), friendly_type(media_type(b"%PDF-1.7"), "zh")
    ('PDF document', 'PDF 文档')
    """
    return _NAMES.get(media_type.mime, _BY_KIND[media_type.kind])[0 if language == "en" else 1]


def friendly_size(count: int, language: Language = "en") -> str:
    """A number of bytes as people read it; a thousand is a thousand.

    >>> friendly_size(2_500_000), friendly_size(999), friendly_size(1), friendly_size(999_960), friendly_size(1, "zh")
    ('2.5 MB', '999 bytes', '1 byte', '1 MB', '1 字节')
    """
    if count < 1_000:
        if language == "zh":
            return f"{count} 字节"
        return f"{count} byte" if count == 1 else f"{count} bytes"
    size = count / 1_000
    unit = 0
    while round(size, 1) >= 1_000 and unit < len(_UNITS) - 1:
        size, unit = size / 1_000, unit + 1
    return f"{size:,.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def friendly_kind(kind: ContentKind, language: Language) -> str:
    """What people call a kind.

    >>> friendly_kind(ContentKind.IMAGE, "en"), friendly_kind(ContentKind.OTHER, "en")
    ('image', 'binary file')
    """
    return _BY_KIND[kind][0 if language == "en" else 1]
