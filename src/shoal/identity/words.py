"""The words that readable names are made of: 256 adjectives and 256 animals. Their order is part of every name."""

ADJECTIVES = """
able active agile airy alert amber ample amused ancient apt arctic astral autumn avid awake azure balmy basic beaming
blazing blithe blue bold bouncy brave breezy bright brisk bronze bubbly busy calm candid careful caring casual cheery
chief chilly civil classic clean clear clever cloudy coastal colorful compact content cool copper coral cordial cosmic
cosy crafty creative crimson crisp cubic curious curly daily dainty dapper daring dawning decent deep deft delta
devoted digital direct distant dizzy double dreamy driven dry dusky dusty eager early earnest earthy eastern easy
elated electric elegant endless epic equal even exact fabled fair faithful famous fancy fast fearless festive fiery
fine firm fleet floral flowing fluent fluffy flying foggy fond frank free fresh friendly frosty frugal funny gallant
gentle genuine giant gifted gilded glad gleaming global glossy golden good graceful grand grassy grateful green handy
happy hardy hasty hazel hearty helpful hidden high honest hopeful humble icy ideal indigo inland ivory jade jolly
jovial joyful keen kind knowing large lasting laughing lavender leafy level light lilac limber lively logical lone
loud loyal lucid lucky lunar magic maple marble marine mellow merry mighty mild mindful misty modern modest mossy
musical mystic native natural neat nimble noble northern novel oaken odd olive open optimal orange patient peaceful
pearly plain playful plucky polar polite proud purple quaint quick quiet radiant rapid rare ready regal robust rosy
round royal ruby rustic sandy scarlet serene sharp shiny silent silver simple sincere smart smooth snowy solar solid
sonic spry stable starry steady stellar sturdy sunny swift witty
""".split()

ANIMALS = """
adder albatross alpaca anchovy anemone anole anteater antelope armadillo auk avocet axolotl badger bandicoot barbel
barnacle barracuda basilisk bass bat beagle bear beaver bee beetle beluga bison bittern blackbird blenny boa boar
bobcat bongo bonito bream brill budgie buffalo bullfinch bunting burbot bustard butterfly buzzard caiman camel canary
capelin caracal cardinal caribou carp catfish cavy chameleon chamois cheetah chinchilla chipmunk chough chub cicada
civet clam coati cobra cockatoo cod collie condor conger coot corgi cormorant cougar coyote crab crane crayfish
cricket crow cuckoo curlew cuttlefish dab dace damselfly darter deer dingo dolphin dormouse dory dove dragonfly duck
dugong dunlin dunnock eagle echidna eel egret eider eland elephant elk emu ermine falcon fennec ferret finch firefly
flamingo flounder fox frigatebird frog gannet gar gazelle gecko gerbil gibbon giraffe gnu goat goby godwit goldfinch
goose gopher goshawk gosling grayling grebe grouper grouse guillemot gull gurnard haddock hake halibut hamster hare
harrier hawk hedgehog heron herring hoopoe hornbill horse hound husky hyrax ibex ibis iguana impala jackal jackdaw
jaguar jay jellyfish kestrel kingfisher kite kiwi koala koi krill kudu ladybird lamprey lapwing lark lemming lemur
leopard limpet ling linnet lion lizard llama lobster loon loris lynx macaw mackerel magpie mallard manatee manta
marlin marmot marten martin meerkat merlin minnow mockingbird mole mongoose moorhen moose moth mullet mussel narwhal
nautilus newt nightjar numbat nuthatch ocelot octopus okapi oriole oryx osprey ostrich otter owl oyster panda panther
parrot partridge pelican penguin perch petrel pheasant pigeon pike pipit plaice plover pollock porpoise puffin puma
quail raven salmon seal starling stork swan tern
""".split()
