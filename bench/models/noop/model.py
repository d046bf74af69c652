import numpy as np
import xebec

xebec.serve(lambda batch: np.zeros(len(batch), dtype="int64"))
