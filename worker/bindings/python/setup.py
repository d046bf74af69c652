"""Everything is in pyproject.toml but the C extension, which is optional: without a compiler the package installs all the same."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "xebec._ring",
            sources=["src/xebec/_ring.c"],
            extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", "-Wno-missing-field-initializers"],
            # A failed build is a warning: the worker then takes its descriptors through the socket.
            optional=True,
        )
    ]
)
