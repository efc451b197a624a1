"""`/v1/stickerpacks`: sticker packs, stored for the programs that request them."""
