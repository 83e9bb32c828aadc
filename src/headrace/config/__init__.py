"""`headrace.yaml`: what it may say, and how it is read.

Keys that are not known are refused. Paths are relative to the file's folder. In texts `${NAME}` stands for an
environment variable, and `$${` for `${`.
"""

from headrace.config.file import HeadraceConfig, Part, config_schema, load_config
from headrace.config.server import ServeSettings, check_exposure, is_loopback

__all__ = [
    "HeadraceConfig",
    "Part",
    "ServeSettings",
    "check_exposure",
    "config_schema",
    "is_loopback",
    "load_config",
]
