"""Only the C extension is declared here; everything else is in pyproject.toml. The extension is optional: without a
compiler the package installs without it."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "xebec._ring",
            sources=["src/xebec/_ring.c"],
            extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers"],
            # A failed build is only a warning: the worker then uses the socket for descriptors.
            optional=True,
        )
    ]
)
