"""Words as eSpeak NG speaks them, and their mel-frequency cepstra. The library and its voices lie in the package espeakng-loader."""

import ctypes
import platform
import zipfile
from pathlib import Path

import numpy as np
from scipy.fft import dct

from packages import Missing

# The accents of English that eSpeak NG has: eight, like the dialects of TIMIT. en is the British one.
ACCENTS = ["en-us", "en-us-nyc", "en", "en-gb-x-rp", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029"]
VOICES = ["m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "f1", "f2", "f3", "f4", "f5"]
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
# Words that differ in their vowel only, as in Peterson and Barney's study of vowels. Accents differ in vowels most.
VOWELS = ["heed", "hid", "head", "had", "hod", "hawed", "hood", "who'd", "hud", "heard", "hayed", "hoed", "hide", "how'd", "haired"]

RATE = 22050  # samples/s, of eSpeak NG
WINDOW, HOP, MELS, CEPSTRA, FRAMES = 551, 220, 26, 13, 12
FEATURES = CEPSTRA * FRAMES

SEED = 1337
SYNCHRONOUS, UTF8 = 2, 1  # of espeak_Initialize and espeak_Synth
RATE_PARAMETER, PITCH_PARAMETER = 1, 3  # of espeak_SetParameter
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Synthesizer:
    """eSpeak NG from the wheel, whose files are unpacked into folder. There is one in a process."""

    def __init__(self, wheel, folder):
        if platform.machine() != "x86_64":
            raise Missing("eSpeak NG is taken from a wheel for x86_64")
        folder = Path(folder)
        with zipfile.ZipFile(wheel) as z:
            z.extractall(folder, [n for n in z.namelist() if n.startswith("espeakng_loader/")])
        try:
            self.library = ctypes.CDLL(str(folder / "espeakng_loader" / "libespeak-ng.so"))
        except OSError as e:
            raise Missing(f"eSpeak NG cannot be loaded: {e}") from e
        self.heard = []
        self.callback = CALLBACK(self.receive)
        if self.library.espeak_Initialize(SYNCHRONOUS, 0, str(folder / "espeakng_loader").encode(), 0) != RATE:
            raise Missing("eSpeak NG does not start")
        self.library.espeak_SetSynthCallback(self.callback)

    def receive(self, samples, count, _):
        if count and samples:
            self.heard.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    def say(self, text, accent, voice, pitch, words_per_minute):
        """The samples of a word, float64. The same words, said in the same order by a new process, are the same."""
        self.heard.clear()
        self.library.espeak_ng_SetRandSeed(ctypes.c_long(SEED))
        if self.library.espeak_SetVoiceByName(f"{accent}+{voice}".encode()):
            raise Missing(f"eSpeak NG has no voice {accent}+{voice}")
        self.library.espeak_SetParameter(PITCH_PARAMETER, int(pitch), 0)
        self.library.espeak_SetParameter(RATE_PARAMETER, int(words_per_minute), 0)
        data = text.encode()
        self.library.espeak_Synth(data, ctypes.c_size_t(len(data) + 1), 0, 1, 0, UTF8, None, None)
        return spoken(np.concatenate(self.heard).astype("float64"))


def spoken(samples):
    """The samples without the silence before and after."""
    loud = np.flatnonzero(np.abs(samples) > 0.02 * np.abs(samples).max())
    return samples[loud[0] : loud[-1] + 1]


def noisy(samples, decibels, draw):
    """The samples with white noise that is so many decibels quieter."""
    level = np.sqrt(np.mean(samples**2)) / 10 ** (decibels / 20)
    return samples + draw.normal(0, level, len(samples))


def filters():
    """Triangular filters on the mel scale, (MELS, bins of the spectrum)."""
    frequencies = np.fft.rfftfreq(WINDOW, 1 / RATE)
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, MELS + 2) / 2595) - 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return np.clip(np.minimum((frequencies - low) / (middle - low), (high - frequencies) / (high - middle)), 0, None)


FILTERS = filters()


def cepstra(samples):
    """FRAMES times CEPSTRA mel-frequency cepstral coefficients. A word is stretched to FRAMES, however long it is."""
    samples = np.append(samples[0], samples[1:] - 0.97 * samples[:-1])
    samples = np.pad(samples, (0, max(0, WINDOW + HOP - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP] * np.hamming(WINDOW)
    mels = np.log(np.abs(np.fft.rfft(frames)) ** 2 @ FILTERS.T + 1e-6)
    coefficients = dct(mels, norm="ortho", axis=1)[:, :CEPSTRA]
    at = np.linspace(0, len(coefficients) - 1, FRAMES)
    return np.array([np.interp(at, np.arange(len(coefficients)), c) for c in coefficients.T]).T.ravel()


def scaled(rows):
    """Columns as bytes: the middle 98 % of each column fill the range."""
    low, high = np.percentile(rows, [1, 99], axis=0)
    return np.round(np.clip((rows - low) / np.maximum(high - low, 1e-9), 0, 1) * 255).astype("uint8")
