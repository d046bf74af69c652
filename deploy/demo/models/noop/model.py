import xebec

xebec.serve(lambda batch: [0] * len(batch))  # batch: a list of arrays, because their lengths differ
