"""Property tests of the shared language run on busy machines: examples are counted, never timed."""

from hypothesis import settings

settings.register_profile("laneway", deadline=None)
settings.load_profile("laneway")
